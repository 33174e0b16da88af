"""A sync of thousands of streams has no more files open than its process may have."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dagster_airbyte_proto.model import PlannedStream
from dagster_airbyte_proto.staging.inputs import RunInput, StreamInput
from dagster_airbyte_proto.staging.lines.demux import RecordLines
from dagster_airbyte_proto.staging.stage import Stage, StageLimits
from tests.staging.conftest import SHAPE, plan, records, rows_of


def _open_in(folder: Path) -> int:
    """The number of files below the folder that this process has open."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # The one by which they are listed.
            found += each.readlink().is_relative_to(folder)
    return found


def test_of_many_streams_no_more_files_are_open_than_may_be(
    stream_input: Callable[[PlannedStream], StreamInput], tmp_path: Path
) -> None:
    planned = [plan({"id": {"type": "integer"}}, name=f"s{number}") for number in range(30)]
    limits = StageLimits(segment_bytes=1, open_files=5)
    stage = Stage(list(map(stream_input, planned)), RunInput(SHAPE, "r1", sync_id=7), limits=limits)
    most = 0
    for first in (0, 2):
        for each in planned:
            lines = records([{"id": first}, {"id": first + 1}], stream=each.id.name)
            stage.add(RecordLines(f'"{each.id.name}"'.encode(), None, lines, 2))
            most = max(most, _open_in(tmp_path))
    assert 0 < most <= 5
    for each in planned:
        stage.mark(each.id)
        part = stage.cut(each.id)
        assert part is not None
        assert [row["id"] for row in rows_of(part)] == [0, 1, 2, 3]
