"""Staged files of a partitioned table: each lies in one partition, whatever order the rows came in."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagster_airbyte_proto.loads.load import FileContent, StagedFile, StagedRows
from dagster_airbyte_proto.model import PlannedStream, Shaping, WriteMode
from dagster_airbyte_proto.staging.inputs import RunInput, StreamInput
from dagster_airbyte_proto.staging.stage import Stage, StageLimits
from tests.staging.conftest import SHAPE, plan, records, rows_of

Inputs = Callable[[PlannedStream], StreamInput]

_PROPERTIES = {"id": {"type": "integer"}, "at": {"type": "integer"}, "part": {"type": ["null", "string"]}}
_SMALL = StageLimits(segment_bytes=300, held_bytes=4000, file_bytes=1 << 20)


def _cut(
    inputs: Inputs, rows: Sequence[dict[str, Any]], write: WriteMode, *, limits: StageLimits = _SMALL, **shaping: Any
) -> StagedRows:
    planned = plan(_PROPERTIES, write=write, key=[("id",)], cursor=("at",))
    planned = msgspec.structs.replace(planned, shaping=Shaping(partition_by=("part", "truncate(10, at)"), **shaping))
    stage = Stage([inputs(planned)], RunInput(SHAPE, "r1", sync_id=1), limits=limits)
    for line in records(rows).splitlines():
        stage.add_line(planned.id, line)
    stage.mark(planned.id)
    part = stage.cut(planned.id)
    assert part is not None
    assert part.partitioned_by == ("part", "truncate(10, at)")
    return part


def _partitions_in(file: StagedFile) -> set[Any]:
    rows = pq.ParquetFile(file.path).read().to_pylist()
    return {(row["part"], None if row["at"] is None else row["at"] // 10 * 10) for row in rows}


def _id(row: dict[str, Any]) -> int:
    return int(row["id"])


def _of(part: StagedRows, content: FileContent) -> Iterator[StagedFile]:
    return (file for file in part.files if file.content is content)


def test_of_more_partitions_than_there_may_be_open_files_no_row_is_lost_and_no_file_is_mixed(
    stream_input: Inputs,
) -> None:
    rows = [{"id": number, "part": str(number % 150), "at": None} for number in range(450)]
    part = _cut(stream_input, rows, WriteMode.APPEND)
    assert sorted(row["id"] for row in rows_of(part)) == list(range(450))
    assert all({file.partition} == _partitions_in(file) for file in part.files)
    assert {file.partition for file in part.files} == {(str(number), None) for number in range(150)}
    assert part.rows == sum(file.rows for file in part.files) == 450


def test_partitions_beyond_the_files_that_may_be_open_have_no_file_for_each_segment(stream_input: Inputs) -> None:
    rows = [{"id": number, "part": str(number % 150), "at": None} for number in range(600)]
    part = _cut(stream_input, rows, WriteMode.APPEND, limits=StageLimits(segment_bytes=300))
    assert sorted(row["id"] for row in rows_of(part)) == list(range(600))
    assert len(part.files) == len({file.partition for file in part.files}) == 150


def test_no_more_than_some_thousand_batches_wait_for_their_row_groups(stream_input: Inputs) -> None:
    rows = [{"id": number, "part": str(number % 300), "at": None} for number in range(3000)]
    part = _cut(stream_input, rows, WriteMode.APPEND, limits=StageLimits(segment_bytes=300))
    assert sorted(row["id"] for row in rows_of(part)) == list(range(3000))
    # Once all were written, and those of a hundred partitions stayed open.
    assert len(part.files) == 300 + 200


_ROWS = st.lists(
    st.fixed_dictionaries(
        {"id": st.integers(0, 4), "at": st.none() | st.integers(0, 30), "part": st.none() | st.sampled_from("ab")}
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_ROWS, st.sampled_from(["", "at is null or at < 20"]))
def test_the_latest_row_of_a_key_stays_wherever_the_others_lie(
    stream_input: Inputs, rows: list[dict[str, Any]], filtered: str
) -> None:
    part = _cut(stream_input, rows, WriteMode.APPEND_DEDUP, filter=filtered)
    latest: dict[int, dict[str, Any]] = {}
    for row in rows:
        before = latest.get(row["id"], row)
        if (-1 if row["at"] is None else row["at"]) >= (-1 if before["at"] is None else before["at"]):
            latest[row["id"]] = row
    left = [row for row in latest.values() if not filtered or row["at"] is None or row["at"] < 20]
    found = [{name: row[name] for name in _PROPERTIES} for row in rows_of(part)]
    assert sorted(found, key=_id) == sorted(left, key=_id)
    partitions = {file.path: file.partition for file in _of(part, FileContent.ROWS)}
    assert all({file.partition} == _partitions_in(file) for file in _of(part, FileContent.ROWS))
    for file in _of(part, FileContent.POSITION_DELETES):
        spoken_of = {row["file_path"] for row in pq.read_table(file.path).to_pylist()}
        assert {partitions[path] for path in spoken_of} == {file.partition}
    assert [file.partition for file in _of(part, FileContent.EQUALITY_DELETES)] == [None]
