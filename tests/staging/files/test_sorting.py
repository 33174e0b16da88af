"""Staged files in the order of `sort_by`: each from its first row to its last, and the right rows in them."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagster_airbyte_proto.loads.load import FileContent, StagedRows
from dagster_airbyte_proto.model import PlannedStream, Shaping, WriteMode
from dagster_airbyte_proto.staging.files import parquet_file as parquet
from dagster_airbyte_proto.staging.inputs import RunInput, StreamInput
from dagster_airbyte_proto.staging.stage import Stage, StageLimits
from tests.staging.conftest import SHAPE, plan, records, rows_of

Inputs = Callable[[PlannedStream], StreamInput]

_PROPERTIES = {
    "id": {"type": "integer"},
    "at": {"type": "integer"},
    "name": {"type": ["null", "string"]},
    "part": {"type": "string"},
}
_SMALL = StageLimits(segment_bytes=300, held_bytes=4000, file_bytes=1 << 20)


def _cut(inputs: Inputs, rows: Sequence[dict[str, Any]], write: WriteMode, shaping: Shaping) -> StagedRows:
    planned = plan(_PROPERTIES, write=write, key=[("id",)], cursor=("at",))
    planned = msgspec.structs.replace(planned, shaping=shaping)
    stage = Stage([inputs(planned)], RunInput(SHAPE, "r1", sync_id=1), limits=_SMALL)
    for line in records(rows).splitlines():
        stage.add_line(planned.id, line)
    stage.mark(planned.id)
    part = stage.cut(planned.id)
    assert part is not None
    return part


def _rank(row: dict[str, Any]) -> tuple[bool, str, int]:
    """As `name, at desc` has it: null is less than any value."""
    return (row["name"] is not None, row["name"] or "", -(row["at"] + 1 if row["at"] is not None else 0))


_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(0, 6),
            "at": st.none() | st.integers(0, 9),
            "name": st.none() | st.sampled_from(["", "b", "Ω", "\U0001f600", "\uffff"]),
            "part": st.sampled_from("xy"),
        }
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_ROWS, st.sampled_from([(), ("part",)]), st.sampled_from([WriteMode.APPEND, WriteMode.APPEND_DEDUP]))
def test_every_file_is_in_order_and_the_latest_row_of_a_key_stays(
    stream_input: Inputs, rows: list[dict[str, Any]], partition_by: tuple[str, ...], write: WriteMode
) -> None:
    shaping = Shaping(partition_by=partition_by, sort_by=("name", "at desc"))
    part = _cut(stream_input, rows, write, shaping)
    for file in part.files:
        if file.content is FileContent.ROWS:
            ranks = [_rank(row) for row in pq.ParquetFile(file.path).read().to_pylist()]
            assert ranks == sorted(ranks)
    expected = rows
    if write is WriteMode.APPEND_DEDUP:
        latest: dict[int, dict[str, Any]] = {}
        for row in rows:
            before = latest.get(row["id"], row)
            if (-1 if row["at"] is None else row["at"]) >= (-1 if before["at"] is None else before["at"]):
                latest[row["id"]] = row
        expected = list(latest.values())
    found = [{name: row[name] for name in _PROPERTIES} for row in rows_of(part)]
    assert sorted(found, key=repr) == sorted(({name: row[name] for name in _PROPERTIES} for row in expected), key=repr)


def test_what_is_sorted_at_once_is_bounded(stream_input: Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "SORTED_BYTES", 3000)
    rows = [{"id": number, "at": -number, "name": str(number % 7), "part": "x"} for number in range(400)]
    part = _cut(stream_input, rows, WriteMode.APPEND, Shaping(sort_by=("id desc",)))
    read = [pq.ParquetFile(file.path).read().column("id").to_pylist() for file in part.files]
    assert len(read) > 10
    assert all(one > other for ids in read for one, other in pairwise(ids))
    assert sorted(number for ids in read for number in ids) == list(range(400))
