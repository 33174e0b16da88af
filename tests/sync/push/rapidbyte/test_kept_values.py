"""Values that a component keeps between pushes: with the rows of a checkpoint, or with a good end."""

from pathlib import Path

import pytest

from dagster_airbyte_proto.checkpoints.kept_values import Asset
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.model import StreamId
from tests.sync.push.pushed_table import person
from tests.sync.push.rapidbyte.component_table import ComponentTable

pytestmark = pytest.mark.everyday("test_they_wait_for_their_rows_or_for_the_end")


def _said(table: ComponentTable) -> list[str]:
    """The values that the component says it had in each scope, from the pipeline's to its own."""
    log = Path(table.run().log or "").read_text()
    return [line.rpartition(" ")[2] for line in log.splitlines() if "kept " in line and " INFO " in line]


def _stored(table: ComponentTable, stream: StreamId | None) -> dict[tuple[str, ...], bytes]:
    store = SqlStore(table.settings.state_url)
    found = {each.key: each.value for each in store.kept_values(Asset("crm", stream))}
    store.close()
    return found


def test_they_wait_for_their_rows_or_for_the_end(quick_folder: Path) -> None:
    table = ComponentTable(quick_folder)
    table.config |= {"keeps": "yes", "fault": "trap", "fault_at": "25", "once": "yes"}
    table.fill([person(number) for number in range(32)])
    assert _said(table) == ["none", "none", "none"]
    # It trapped behind the checkpoint of 20 rows. What belongs to no stream is not kept then.
    contacts = StreamId.of("contacts")
    assert _stored(table, contacts) == {("destination", "rows"): b'"20"'}
    assert _stored(table, None) == {}
    assert _said(table) == ["none", "20", "none"]
    assert _stored(table, contacts) == {("destination", "rows"): b'"10"'}
    assert _stored(table, None) == {("pipeline", "rows"): b'"10"', ("destination", "rows"): b'"10"'}
    table.fill([person(number, "again") for number in range(32)])
    assert _said(table) == ["10", "10", "10"]
