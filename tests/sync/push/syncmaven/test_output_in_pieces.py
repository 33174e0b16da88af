"""The output of a process says the same however it is cut into pieces, and with bytes behind it that say nothing."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dagster_airbyte_proto.protocols.syncmaven import enrichment
from dagster_airbyte_proto.protocols.syncmaven.destination import SyncmavenDestination
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.connector.destination import ConnectorOutput, Destination
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.run_log import RunLog, new_run_id
from tests.sync.enrichment.test_row_enrichment import connection_of

_TRANSCRIPTS = Path(__file__).parents[3] / "transcripts"
_DESTINATIONS = ("syncmaven_hard_lines", "syncmaven_kit_write", "syncmaven_old_kit_write")
_ENRICHMENTS = ("syncmaven_enrich_hard_lines", "syncmaven_enrich_kit")
_CUT_OFF = b'\x00\xff{"type":"stream-result","payload":{"received":99'


@pytest.fixture
def said() -> list[str]:
    """The lines of the run's log."""
    return []


@pytest.fixture
def connector(tmp_path: Path, said: list[str]) -> Iterator[Destination]:
    """One that is not started."""
    settings = Settings.load(tmp_path, None)
    settings.make_home()
    with RunLog(tmp_path, new_run_id(), on_line=lambda _, text: said.append(text)) as log, Engine(settings) as engine:
        yield engine.destination(connection_of({}), log)


@pytest.mark.parametrize("name", [*_DESTINATIONS, *_ENRICHMENTS])
def test_output_in_pieces_is_what_it_is_as_a_whole(name: str, connector: Destination, said: list[str]) -> None:
    read = enrichment.reply if name in _ENRICHMENTS else SyncmavenDestination().reply
    text = (_TRANSCRIPTS / f"{name}.jsonl").read_bytes()
    whole, error, words = _taken(text, len(text), read, connector, said)
    assert whole
    for size in (1, 7):
        assert _taken(text, size, read, connector, said) == (whole, error, words)
    found, same_error, more = _taken(text + _CUT_OFF, 1, read, connector, said)
    assert (found, same_error) == (whole, error)
    assert len(more) == len(words) + 1  # The line that has no end is in the log.


def _taken(
    text: bytes, size: int, read: Callable[[bytes], object], connector: Destination, said: list[str]
) -> tuple[list[object], str | None, list[str]]:
    """What the output has for its caller, its error, and what went to the log."""
    output = ConnectorOutput(connector, read)
    del said[:]
    found = [each for start in range(0, len(text), size) for each in output.feed(text[start : start + size])]
    found += output.finish()
    return found, output.error, list(said)


def test_no_part_of_a_secret_is_in_the_log_of_a_long_line(connector: Destination, said: list[str]) -> None:
    """It would be, where a line is cut before it is masked."""
    secret = "a key of many letters, " * 200
    connector.mask_more([secret])
    for size in (1980, 3980):
        text = "x" * size + secret
        for line in (text, json.dumps({"type": "log", "payload": {"level": "info", "params": [{"key": text}]}})):
            _taken(line.encode(), len(line), SyncmavenDestination().reply, connector, said)
            assert len(said) == 1
            assert "a key" not in said[0]
            assert "x***" in said[0]
