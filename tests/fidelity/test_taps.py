"""What taps send beside plain rows, through a sync, cell by cell.

`taps/` has a transcript for each, in the spirit of what meltano's SDK tests its targets with. The tap's catalog is what
the first SCHEMA of each stream says.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.model import PlannedStream, StreamId
from dagster_airbyte_proto.schema.columns import EXTRACTED_AT
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest, planned_streams
from dagster_airbyte_proto.sync.report import SyncStatus
from tests.fidelity.lines import offer_transcript
from tests.fidelity.report import compare
from tests.fidelity.sent import sent_by_tap
from tests.sync.conftest import OpenShop

_FOLDER = Path(__file__).parent / "taps"
_TRANSCRIPTS = {path.stem: path for path in sorted(_FOLDER.glob("*.jsonl"))}
_NO_KEY = "every part of the key is null"


class _Told(NamedTuple):
    """How many cells of all streams are null or cut with their reason, and what else is told of the rows."""

    accounted: int = 0
    ignored: tuple[str, ...] = ()
    rejected_by_key: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


_TOLD = {
    "arrays": _Told(accounted=1),
    "dates": _Told(accounted=12),
    "key_missing": _Told(rejected_by_key=(_NO_KEY,) * 2),
    "numbers": _Told(accounted=7),
    "schema_grows": _Told(added=("b", "c", "d")),
    "strings": _Told(accounted=1),
    "undeclared": _Told(ignored=("more", "more", "most")),
}
_UNKEYED = {"no_key", "no_properties"}
_WAYS = [
    (name, write)
    for name in _TRANSCRIPTS
    for write in ("append", "append_dedup")
    if write == "append" or name not in _UNKEYED
]


@pytest.mark.parametrize(("name", "write"), _WAYS)
def test_each_value_of_a_tap_is_equal_or_accounted_for(name: str, write: str, shop: OpenShop) -> None:
    place = shop(read="full_refresh", write=write)
    output = _TRANSCRIPTS[name].read_bytes()
    catalog, sent = offer_transcript(place, output), sent_by_tap(output)

    told = place.sync()

    others = [each for each in told.warnings if "did not fit" not in each]
    assert (told.status, others) == (SyncStatus.COMPLETE, [])
    expected, found = _TOLD.get(name, _Told()), _Told()
    for planned in planned_streams(Connection.from_file(place.connection_file), catalog, SyncRequest()):
        report = compare(
            _described(planned, output), sent[planned.id], place.tables.rows(planned.table), in_order_of=EXTRACTED_AT
        )
        run = told.streams[str(planned.id)]
        assert report.wrong == []
        assert (run.emitted, run.ignored_fields) == (len(sent[planned.id]), dict(report.ignored))
        found = _Told(
            found.accounted + report.accounted.total(),
            (*found.ignored, *report.ignored.elements()),
            (*found.rejected_by_key, *(why for why, rows in run.rejections.items() for _ in range(rows))),
            (*found.added, *(change.column for change in run.schema_changes)),
        )
    assert found == (expected if write == "append_dedup" else expected._replace(rejected_by_key=()))


@pytest.mark.parametrize(
    ("name", "found"), [("key_changes", "its key was id, is mail"), ("type_changes", "column n was int64, is string")]
)
def test_a_stream_that_becomes_another_between_rows_ends_and_nothing_of_it_is_lost(
    name: str, found: str, shop: OpenShop
) -> None:
    place = shop(read="full_refresh", write="overwrite")
    offer_transcript(place, (_FOLDER / "refused" / f"{name}.jsonl").read_bytes())
    report = place.sync()
    [told] = report.streams.values()
    assert report.status is SyncStatus.FAILED
    assert found in str(told.error)
    assert (told.emitted, told.committed, told.rejected) == (2, 0, 2)


def _described(planned: PlannedStream, output: bytes) -> PlannedStream:
    """With the columns of all that its SCHEMA messages tell."""
    properties: dict[str, Any] = {}
    for message in map(json.loads, output.splitlines()):
        if message["type"] == "SCHEMA" and StreamId.of(message["stream"]) == planned.id:
            properties |= message["schema"].get("properties", {})
    stream = msgspec.structs.replace(planned.stream, json_schema={"type": "object", "properties": properties})
    return msgspec.structs.replace(planned, stream=stream)
