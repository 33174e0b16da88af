"""Files are cut only where a mark stands: whatever the order of things, each row up to the mark, once, in order."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagster_airbyte_proto.errors import InternalError, StagingError
from dagster_airbyte_proto.loads.load import FileContent, StagedRows
from dagster_airbyte_proto.model import PlannedStream, StreamId, WriteMode
from dagster_airbyte_proto.points import arm
from dagster_airbyte_proto.schema.columns import ShapingPlan
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.staging.files.staging_folder import has_orphan_files, remove_orphan_files, run_staging_folder
from dagster_airbyte_proto.staging.inputs import RunInput, StreamInput
from dagster_airbyte_proto.staging.lines.demux import Demux, RecordLines
from dagster_airbyte_proto.staging.stage import Stage, StageLimits
from tests.staging.conftest import SHAPE, plan, record, records, rows_of, target_of

_PROPERTIES = {"id": {"type": "integer"}, "o": {"type": "object"}}
_USERS = plan(_PROPERTIES)
_ORDERS = plan(_PROPERTIES, name="orders")
_TINY = StageLimits(segment_bytes=400, held_bytes=900, file_bytes=1)

Inputs = Callable[[PlannedStream], StreamInput]


def _stage(*inputs: StreamInput, limits: StageLimits = _TINY) -> Stage:
    return Stage(inputs, RunInput(SHAPE, "r1", sync_id=7), limits=limits)


def _run(first: int, rows: int, stream: str = "users") -> RecordLines:
    lines = records([{"id": number} for number in range(first, first + rows)], stream=stream)
    return RecordLines(f'"{stream}"'.encode(), None, lines, rows)


def _ids(part: StagedRows | None) -> list[int]:
    return [row["id"] for row in rows_of(part)] if part else []


def _files(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*.parquet")}


class _Add(NamedTuple):
    stream: int
    rows: int


class _Mark(NamedTuple):
    stream: int


class _Cut(NamedTuple):
    stream: int


class _Discard(NamedTuple):
    stream: int


_OPERATIONS = st.one_of(
    st.builds(_Add, st.integers(0, 1), st.integers(1, 8)),
    st.builds(_Add, st.integers(0, 1), st.integers(1, 8)),
    st.builds(_Mark, st.integers(0, 1)),
    st.builds(_Cut, st.integers(0, 1)),
    st.builds(_Discard, st.integers(0, 1)),
)


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(_OPERATIONS, max_size=30),
    st.sampled_from([_TINY, StageLimits(), StageLimits(segment_bytes=1, open_files=1), StageLimits(held_bytes=1)]),
)
def test_a_cut_holds_the_rows_up_to_the_last_mark_each_once_in_order(
    stream_input: Inputs, tmp_path: Path, operations: list[_Add | _Mark | _Cut | _Discard], limits: StageLimits
) -> None:
    planned = [_USERS, _ORDERS]
    stage = _stage(*map(stream_input, planned), limits=limits)
    pending: list[list[int]] = [[], []]
    marked = [0, 0]
    received = [0, 0]
    handed_over = _files(tmp_path)  # The folder is the same for all examples.
    for operation in operations:
        at = operation.stream
        stream = planned[at].id
        match operation:
            case _Add(rows=rows):
                stage.add(_run(received[at], rows, stream.name))
                pending[at] += range(received[at], received[at] + rows)
                received[at] += rows
            case _Mark():
                stage.mark(stream)
                marked[at] = len(pending[at])
            case _Cut():
                part = stage.cut(stream)
                assert _ids(part) == pending[at][: marked[at]]
                assert (part is None) == (marked[at] == 0)
                if part:
                    assert part.emitted == part.rows + sum(part.rejected.values()) == marked[at]
                    handed_over |= {file.path for file in part.files}
                pending[at], marked[at] = pending[at][marked[at] :], 0
            case _Discard():
                assert stage.discard(stream) == len(pending[at])
                pending[at], marked[at] = [], 0
        assert stage.emitted(stream) == received[at]
        assert (stage.marked_bytes > 0) == any(marked)
    stage.close()
    assert _files(tmp_path) == handed_over


def test_marked_bytes_are_the_bytes_of_the_marked_records_until_they_are_written(stream_input: Inputs) -> None:
    stage = _stage(stream_input(_USERS), stream_input(_ORDERS), limits=StageLimits())
    users, orders = _run(0, 20), _run(0, 5, "orders")
    for run, planned in ((users, _USERS), (orders, _ORDERS)):
        stage.add(run)
        stage.mark(planned.id)
    stage.add(users)
    assert stage.marked_bytes == len(users.lines) + len(orders.lines)
    part = stage.cut(_USERS.id)
    assert part is not None
    assert part.record_bytes == len(users.lines)
    assert stage.marked_bytes == len(orders.lines)
    assert stage.received_bytes(_USERS.id) == 2 * len(users.lines)
    stage.close()


@pytest.mark.parametrize("write", [WriteMode.APPEND, WriteMode.APPEND_DEDUP])
def test_marked_bytes_follow_what_the_records_take_once_written(write: WriteMode, stream_input: Inputs) -> None:
    users = plan(_PROPERTIES, write=write, key=[("id",)])
    stage = _stage(stream_input(users), limits=StageLimits(segment_bytes=1 << 20, held_bytes=1 << 20))
    for first in range(0, 40_000, 500):
        stage.add(_run(first, 500))
        stage.mark(_USERS.id)
    foretold, came = stage.marked_bytes, stage.received_bytes(_USERS.id)
    part = stage.cut(_USERS.id)
    assert part is not None
    in_files = sum(file.size_bytes for file in part.files if file.content is FileContent.ROWS)
    in_memory = 40_000 * 16 if write is WriteMode.APPEND_DEDUP else 0  # The key and the time, to find duplicates.
    assert foretold / 2 < in_files + in_memory < foretold * 2 < came
    assert stage.marked_bytes == 0
    stage.close()


def test_streams_that_hold_more_than_the_budget_do_not_lie_in_more_files_for_it(stream_input: Inputs) -> None:
    planned = [plan(_PROPERTIES, name=f"s{number}") for number in range(6)]
    run_bytes, budget = len(_run(0, 50, "s0").lines), 24
    limits = StageLimits(segment_bytes=3 * run_bytes, held_bytes=budget * run_bytes)
    stage = _stage(*map(stream_input, planned), limits=limits)
    for first in range(0, 2000, 50):
        for each in planned:
            stage.add(_run(first, 50, each.id.name))  # The budget is spent here, where rows have no mark yet.
            stage.mark(each.id)
    for each in planned:
        part = stage.cut(each.id)
        assert part is not None
        assert _ids(part) == list(range(2000))
        assert len(part.files) == 1
    stage.close()


def test_times_of_arrival_follow_the_order_of_rows_wherever_they_are_cut(stream_input: Inputs) -> None:
    planned = msgspec.structs.replace(_USERS, sdc_columns=True)
    stage = _stage(stream_input(planned), limits=StageLimits())
    stage.add(_run(0, 500))
    stage.mark(planned.id)
    stage.add(_run(500, 500))
    cuts = [stage.cut(planned.id)]
    stage.mark(planned.id)
    cuts.append(stage.cut(planned.id))
    rows = [row for part in cuts if part for row in rows_of(part)]
    assert [row["id"] for row in rows] == list(range(1000))
    for name in ("_sdc_batched_at", "_sdc_received_at", "_sdc_sequence"):
        assert (told := [row[name] for row in rows]) == sorted(told)
    assert rows[0]["_sdc_batched_at"] <= rows[0]["_sdc_received_at"]


def test_no_target_is_needed_before_the_first_rows() -> None:
    inputs = [StreamInput(plan(_PROPERTIES, name=f"s{number}"), table_columns(_USERS)) for number in range(1000)]
    stage = _stage(*inputs, limits=StageLimits())
    for each in inputs:
        stage.mark(each.planned.id)
        assert not stage.needs_target(each.planned.id)
        assert stage.cut(each.planned.id) is None
    stage.close()


def test_a_stream_with_a_full_segment_waits_for_its_target_and_loses_nothing(
    stream_input: Inputs, tmp_path: Path
) -> None:
    stage = _stage(stream_input(_USERS)._replace(target=None))
    stage.add(_run(0, 2))
    assert (stage.awaiting_target, stage.needs_target(_USERS.id)) == ((), True)
    stage.mark(_USERS.id)
    for first in range(2, 20, 2):
        stage.add(_run(first, 2))
    assert stage.awaiting_target == (_USERS.id,)
    assert not _files(tmp_path)
    stage.set_target(_USERS.id, target_of(_USERS, tmp_path))
    assert not stage.awaiting_target
    assert _files(tmp_path)
    assert _ids(stage.cut(_USERS.id)) == [0, 1]
    stage.mark(_USERS.id)
    assert _ids(stage.cut(_USERS.id)) == list(range(2, 20))


def test_when_memory_is_full_the_streams_that_hold_most_wait_for_their_targets(
    stream_input: Inputs, tmp_path: Path
) -> None:
    limits = StageLimits(segment_bytes=1 << 20, held_bytes=2000)
    stage = _stage(*(stream_input(each)._replace(target=None) for each in (_USERS, _ORDERS)), limits=limits)
    stage.add(_run(0, 2, "orders"))
    stage.add(_run(0, 30))
    assert stage.awaiting_target == (_USERS.id,)
    stage.set_target(_USERS.id, target_of(_USERS, tmp_path))
    assert not stage.awaiting_target
    assert len(_files(tmp_path)) == 1
    assert stage.needs_target(_ORDERS.id)
    stage.close()
    assert not _files(tmp_path)


def test_a_cut_without_a_target_is_a_bug_and_keeps_the_rows(stream_input: Inputs, tmp_path: Path) -> None:
    stage = _stage(stream_input(_USERS)._replace(target=None))
    stage.add(_run(0, 2))
    stage.mark(_USERS.id)
    with pytest.raises(InternalError):
        stage.cut(_USERS.id)
    stage.set_target(_USERS.id, target_of(_USERS, tmp_path))
    assert _ids(stage.cut(_USERS.id)) == [0, 1]


def test_an_unforeseen_exception_fails_its_stream_alone(stream_input: Inputs, tmp_path: Path) -> None:
    given = stream_input(_USERS)
    broken = ShapingPlan(given.columns.parsed_columns, hashed=frozenset({"no such column"}))
    columns = msgspec.structs.replace(given.columns, shaping_plan=broken)
    stage = _stage(given._replace(columns=columns), stream_input(_ORDERS))
    for first in range(0, 100, 10):
        stage.add(_run(first, 10))
        stage.add(_run(first, 10, "orders"))
        stage.mark(_USERS.id)
        stage.mark(_ORDERS.id)
    assert stage.cut(_USERS.id) is None
    assert _ids(stage.cut(_ORDERS.id)) == list(range(100))
    assert list(stage.faults) == [_USERS.id]
    assert "KeyError in staging/rows/shaping.py" in str(stage.faults[_USERS.id])
    assert (stage.emitted(_USERS.id), stage.discard(_USERS.id), stage.marked_bytes) == (100, 0, 0)
    assert not [path for path in _files(tmp_path) if "users" in Path(path).name]


def test_rejected_rows_alone_make_a_part_without_files(stream_input: Inputs) -> None:
    stage = _stage(stream_input(_USERS))
    stage.add_line(_USERS.id, b"no JSON")
    stage.mark(_USERS.id)
    part = stage.cut(_USERS.id)
    assert part is not None
    assert (part.files, part.emitted, part.rows) == ((), 1, 0)
    assert part.rejected == {"the line is no JSON object": 1}


def test_files_carry_the_tables_field_ids_and_lie_in_the_runs_folder(stream_input: Inputs, tmp_path: Path) -> None:
    stage = _stage(stream_input(_USERS))
    stage.add(_run(0, 3))
    stage.mark(_USERS.id)
    part = stage.cut(_USERS.id)
    assert part is not None
    file = part.files[0]
    target = target_of(_USERS, tmp_path)
    assert file.path.startswith(run_staging_folder(target, "r1") + "/")
    assert (file.rows, file.size_bytes) == (3, Path(file.path).stat().st_size)
    assert pq.ParquetFile(file.path).schema_arrow.equals(target.schema, check_metadata=True)
    stage.close()
    assert Path(file.path).exists()


def test_columns_that_only_the_table_has_are_nulls(tmp_path: Path) -> None:
    wider = plan({"old": {"type": "array", "items": {"type": "string"}}, **_PROPERTIES})
    stage = _stage(StreamInput(_USERS, table_columns(_USERS), target_of(wider, tmp_path)))
    stage.add(_run(0, 2))
    stage.mark(_USERS.id)
    part = stage.cut(_USERS.id)
    assert part is not None
    assert [(row["old"], row["id"]) for row in rows_of(part)] == [(None, 0), (None, 1)]


def test_records_of_streams_nobody_asked_for_are_counted(stream_input: Inputs) -> None:
    stage = _stage(stream_input(_USERS))
    stage.add(_run(0, 3, "secrets"))
    stage.add(RecordLines(b'"users"', b'"elsewhere"', _run(0, 2).lines, 2))
    stage.add(_run(0, 1))
    stage.add_line(StreamId.of("secrets"), b"{}")
    assert stage.unconfigured == {StreamId.of("secrets"): 4, StreamId.of("users", "elsewhere"): 2}
    assert stage.emitted(_USERS.id) == 1
    stage.close()


def test_two_streams_of_one_name_are_told_apart_by_a_namespace_behind_the_data(stream_input: Inputs) -> None:
    here, there = plan(_PROPERTIES, namespace="here"), plan(_PROPERTIES, namespace="there")
    stage = _stage(stream_input(here), stream_input(there))
    lines = [
        record(f'{{"id":{number}}}', rest=f',"namespace":{namespace},"emitted_at":1')
        for number, namespace in enumerate(['"here"', '"there"', "null", '"here"'])
    ]
    stage.add(RecordLines(b'"users"', None, b"".join(lines), len(lines)))
    for planned in (here, there):
        stage.mark(planned.id)
    assert (_ids(stage.cut(here.id)), _ids(stage.cut(there.id))) == ([0, 3], [1])
    assert stage.unconfigured == {StreamId.of("users"): 1}


def test_a_record_of_thirty_megabytes_lands_whole(stream_input: Inputs) -> None:
    planned = plan({"id": {"type": "integer"}, "text": {"type": "string"}})
    stage = _stage(stream_input(planned), limits=StageLimits())
    line = record('{"id":1,"text":"' + "x" * (30 << 20) + '"}')
    demux = Demux(SHAPE)
    for at in range(0, len(line), 1 << 20):
        for item in demux.feed(line[at : at + (1 << 20)]):
            assert isinstance(item, RecordLines)
            stage.add(item)
    stage.mark(planned.id)
    part = stage.cut(planned.id)
    assert part is not None
    assert [len(row["text"]) for row in rows_of(part)] == [30 << 20]


def test_a_file_that_is_closed_is_a_point_to_die_at(stream_input: Inputs, tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []
    arm(lambda point: seen.append((point, len(_files(tmp_path)))))
    try:
        stage = _stage(stream_input(_USERS))
        stage.add(_run(0, 2))
        stage.mark(_USERS.id)
        stage.cut(_USERS.id)
    finally:
        arm(None)
    assert seen == [("stage.file_closed", 1)]


def test_a_place_that_cannot_be_made_is_a_staging_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    stage = _stage(StreamInput(_USERS, table_columns(_USERS), target_of(_USERS, tmp_path / "file")))
    stage.add(_run(0, 2))
    stage.mark(_USERS.id)
    with pytest.raises(StagingError) as caught:
        stage.cut(_USERS.id)
    assert str(tmp_path / "file") in caught.value.found
    stage.close()


@contextmanager
def _files_no_larger_than(size_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_takes_no_more_is_a_staging_error_and_nothing_is_left(stream_input: Inputs, tmp_path: Path) -> None:
    stage = _stage(stream_input(_USERS))
    with _files_no_larger_than(1000), pytest.raises(StagingError) as caught:
        stage.add(_run(0, 2000))
        stage.mark(_USERS.id)
        stage.cut(_USERS.id)
    assert "bytes)" in caught.value.found
    stage.close()
    assert _files(tmp_path) == set()


def test_removing_orphan_files_leaves_the_listed_ones(stream_input: Inputs, tmp_path: Path) -> None:
    stage = _stage(stream_input(_USERS))
    parts = []
    for _ in range(3):
        stage.add(_run(0, 2))
        stage.mark(_USERS.id)
        part = stage.cut(_USERS.id)
        assert part is not None
        parts.append(part)
    folder = run_staging_folder(target_of(_USERS, tmp_path), "r1")
    kept = parts[1].files[0].path
    assert has_orphan_files(folder, keep=[kept])
    assert remove_orphan_files(folder, keep=[kept]) == 2
    assert not has_orphan_files(folder, keep=[kept])
    assert _files(tmp_path) == {kept}
    assert remove_orphan_files(f"file://{folder}", keep=[]) == 1
    assert not Path(folder).exists()
    assert remove_orphan_files(folder, keep=[]) == 0
