"""A destination of Syncmaven, which has objects of its own: rows that fit one of them, and one result for all."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.certification.certificate import Certificate, certify
from dagster_airbyte_proto.certification.rule import Outcome
from dagster_airbyte_proto.certification.watching.watched_program import Bounds, Gathering, Scratch
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.connector.launcher_choice import ConnectorOptions
from dagster_airbyte_proto.sync.engine import Engine
from tests.certification.conftest import with_outcome

_COMMAND = [sys.executable, "-m", "dagster_airbyte_proto.testing.fake_syncmaven"]

CertifyDestination = Callable[..., Certificate]


@pytest.fixture
def certified(tmp_path: Path) -> Iterator[CertifyDestination]:
    settings = Settings.load(tmp_path / "home", None)
    settings.make_home()
    with Engine(settings, connector_options=ConnectorOptions(stop_grace_seconds=1.0)) as engine:

        def certified(scratch: Scratch = Scratch("contacts", 200), **config: Any) -> Certificate:  # noqa: B008 - frozen
            document = {
                "name": "crm",
                "connector": {"protocol": "syncmaven", "launch": {"kind": "local", "command": _COMMAND}},
                "config": {"path": str(tmp_path / "out.jsonl"), **config},
                "push": {"contacts": {"from": "shop.people", "key": ["id"], "options": {"list": "testers"}}},
            }
            options = Gathering(Bounds(query_seconds=60.0, write_seconds=60.0), None, scratch)
            return certify(engine, Connection.model_validate(document), options)

        yield certified


def test_rows_fit_the_object_that_is_named_and_its_result_is_read(
    certified: CertifyDestination, tmp_path: Path
) -> None:
    found = certified(result="wrong")
    rulings = {each.rule.name: each.ruling for each in found.rules}
    assert with_outcome(rulings, Outcome.BROKEN) == {"result_counts"}
    assert "it received 19 rows, and 20 were sent" in rulings["result_counts"].met
    assert (rulings["result_comes"].outcome, found.objects) == (Outcome.HOLDS, ("contacts",))
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    starts = [line["message"]["payload"] for line in lines if "message" in line]
    assert {start["stream"] for start in starts} == {"contacts"}
    assert starts[0]["streamOptions"] == {"list": "testers"}
    assert next(line["row"] for line in lines if "row" in line) == {"id": 1, "name": "certify 1", "score": 1}


@pytest.mark.nightly
def test_without_a_result_no_row_is_proved(certified: CertifyDestination) -> None:
    rulings = {each.rule.name: each.ruling for each in certified(result="never").rules}
    assert {"result_comes", "result_counts"} == with_outcome(rulings, Outcome.BROKEN)


def test_an_object_of_its_own_has_to_be_named(certified: CertifyDestination, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no stream airbyte_proto_certify; it has contacts"):
        certified(Scratch())
    assert not (tmp_path / "out.jsonl").exists()
