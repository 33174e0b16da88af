"""The progress of a push on stderr."""

from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.cli import push_progress
from dagster_airbyte_proto.cli.push_progress import PushView
from dagster_airbyte_proto.loads.push import Delivery
from dagster_airbyte_proto.model import StreamId
from tests.sync.push.pushed_table import PushedTable, person

_CONTACTS = StreamId.of("contacts")


@pytest.fixture
def delivery(quick_folder: Path) -> Delivery:
    """The delivery of 20 rows."""
    table = PushedTable(quick_folder)
    table.fill([person(number) for number in range(20)])
    table.contacts()
    store = SqlStore(table.settings.state_url)
    found = store.deliveries("crm")[_CONTACTS]
    store.close()
    return found


def _drawn(view: PushView) -> list[str]:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(view.drawn())
    return [" ".join(line.split()) for line in captured.get().splitlines()]


def test_a_table_shows_each_stream_and_what_is_acknowledged_of_it(delivery: Delivery) -> None:
    view = PushView("crm", ["contacts", "leads"], print)
    view.began({_CONTACTS: delivery})
    view.looked({_CONTACTS: delivery})  # It is of an earlier push.
    assert _drawn(view)[0].startswith("crm: planning")
    plan = msgspec.structs.replace(delivery.plan, plan_id="of this push")
    view.looked({_CONTACTS: delivery._replace(plan=plan, announced=15, acknowledged=10)})
    lines = _drawn(view)
    assert "contacts 20 15 10 delivering" in lines
    assert "leads waiting" in lines
    view.looked({_CONTACTS: delivery._replace(plan=plan)})
    assert "contacts 20 20 20 complete" in _drawn(view)


def test_lines_say_how_far_it_is(delivery: Delivery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_progress, "_LINE_SECONDS", 0.0)
    lines: list[str] = []
    view = PushView("crm", ["contacts"], lines.append)
    view.began({})
    view.write_progress()
    assert lines == []
    for _ in range(2):  # Without progress there is no second line.
        view.looked({_CONTACTS: delivery._replace(acknowledged=10)})
        view.write_progress()
    assert len(lines) == 1
    assert lines[0].startswith("crm: contacts 10 of 20 rows acknowledged, ")
