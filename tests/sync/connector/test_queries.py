"""Short requests to a connector that is asked on its stdin and does not end by itself, and to one that is killed."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.protocols.events import OperationsEvent
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.connector.queries import query_connector
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.run_log import RunLog, new_run_id

_FAKE = {"kind": "local", "command": [sys.executable, "-m", "dagster_airbyte_proto.testing.fake_syncmaven"]}
_SECONDS = 12.0


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    settings = Settings.load(tmp_path, None)
    settings.make_home()
    with Engine(settings) as engine:
        yield engine


def _streams(engine: Engine, folder: Path, config: dict[str, Any]) -> OperationsEvent:
    connector = {"protocol": "syncmaven", "launch": _FAKE}
    document = {"name": "crm", "connector": connector, "config": {"path": "", **config}}
    with RunLog(folder, new_run_id()) as log:
        destination = engine.destination(Connection.model_validate(document), log)
        asked = [destination.protocol.discover(destination.config.current)]
        return query_connector(
            destination.connector, asked, OperationsEvent, destination.listener, timeout_seconds=_SECONDS
        )


def test_one_that_logs_for_ever_behind_its_answer_has_answered(engine: Engine, tmp_path: Path) -> None:
    assert b'"contacts"' in _streams(engine, tmp_path, {"chats": True}).message


def test_one_that_logs_for_ever_behind_its_halt_has_failed(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match="the key was refused"):
        _streams(engine, tmp_path, {"refuses": True, "chats": True})


def test_one_that_is_killed_may_answer_the_next_time(engine: Engine, tmp_path: Path) -> None:
    """As by the kernel, where memory runs out for a moment."""
    launch = {"kind": "local", "command": [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]}
    document = {"name": "shop", "connector": {"protocol": "airbyte", "launch": launch}, "config": {}}
    with (
        RunLog(tmp_path, new_run_id()) as log,
        pytest.raises(ConnectorError, match="it gave no answer, and was ended by signal 9") as refused,
    ):
        engine.source(Connection.model_validate(document), log).spec()
    assert refused.value.retryable
