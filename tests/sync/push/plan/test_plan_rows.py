"""The rows of a sealed plan, read from any position."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dagster_airbyte_proto.loads.push import PlanFile, PlannedCounts, SealedPlan
from dagster_airbyte_proto.loads.storage import LOCAL
from dagster_airbyte_proto.model import PushMode, StreamId
from dagster_airbyte_proto.sync.push.plan.plan_rows import ReadSize, plan_batches


def _files(folder: Path, rows: int, file_rows: int) -> tuple[PlanFile, ...]:
    folder.mkdir()
    table = pa.table({"id": range(rows)})
    files = []
    for start in range(0, rows, file_rows):
        part = table.slice(start, file_rows)
        pq.write_table(part, folder / f"part-{start:05d}.parquet")
        files.append(PlanFile(str(folder / f"part-{start:05d}.parquet"), part.num_rows))
    return tuple(files)


def test_rows_of_small_files_come_in_whole_batches(tmp_path: Path) -> None:
    counts = PlannedCounts(added=25_000, removed=20)
    files, removed = _files(tmp_path / "rows", 25_000, 3_000), _files(tmp_path / "removed", 20, 7)
    plan = SealedPlan("p", "crm", StreamId.of("people"), PushMode.MIRROR, str(tmp_path), files, removed, counts, "f")
    batches = list(plan_batches(plan, LOCAL, 100, 25_015))
    assert [(each.start, each.end, each.is_removal) for each in batches] == [
        (100, 9_000, False),
        (9_000, 18_000, False),
        (18_000, 25_000, False),
        (25_000, 25_015, True),
    ]
    assert [row for each in batches for row in each.rows.column("id").to_pylist()] == [*range(100, 25_000), *range(15)]


def test_more_rows_are_read_at_once_where_a_batch_may_have_them(tmp_path: Path) -> None:
    files = _files(tmp_path / "rows", 100_000, 40_000)
    counts = PlannedCounts(added=100_000)
    plan = SealedPlan("p", "crm", StreamId.of("people"), PushMode.APPEND, str(tmp_path), files, (), counts, "f")

    def sizes(size: ReadSize) -> list[int]:
        batches = list(plan_batches(plan, LOCAL, 0, 100_000, size))
        assert [row for each in batches for row in each.rows.column("id").to_pylist()] == [*range(100_000)]
        return [each.rows.num_rows for each in batches]

    assert sizes(ReadSize(80_000, 8 << 20)) == [80_000, 20_000]
    assert max(sizes(ReadSize(80_000, 240_000))) <= 30_000
    assert sizes(ReadSize()) == [10_000] * 10
    assert sizes(ReadSize(50_000, 1)) == [10_000] * 10
