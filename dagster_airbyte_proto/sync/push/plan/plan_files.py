"""The Parquet files of a plan: found in its folder, made durable, and looked at column by column."""

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from dagster_airbyte_proto.loads.push import PlanFile
from dagster_airbyte_proto.loads.storage import Storage, is_local
from dagster_airbyte_proto.staging.files.staging_folder import StagingFolder, raising_staging_error, sync_to_disk


def plan_files(folder: str, storage: Storage) -> tuple[PlanFile, ...]:
    """The Parquet files of a folder in the order of their names, made durable; those without rows are left out."""
    place = StagingFolder.at(folder, storage)
    with raising_staging_error("seal the plan of a push", folder):
        entries = place.filesystem.get_file_info(fs.FileSelector(place.path, allow_not_found=True))
        names = sorted(entry.base_name for entry in entries if entry.base_name.endswith(".parquet"))
        found = []
        for name in names:
            path, uri = place.file(name)
            with place.filesystem.open_input_file(path) as opened:
                rows = pq.read_metadata(opened).num_rows
            if rows:
                if is_local(uri):
                    sync_to_disk(place, path)
                found.append(PlanFile(uri, rows))
        return tuple(found)


def column_of(file: PlanFile, storage: Storage, name: str) -> pa.ChunkedArray | None:
    """Returns a column of a file; None if it has none of this name. Raises StagingError where it cannot be read."""
    filesystem, path = storage.at(file.path)
    with (
        raising_staging_error("seal the plan of a push", file.path),
        filesystem.open_input_file(path) as opened,
        pq.ParquetFile(opened) as parquet,
    ):
        return parquet.read([name]).column(0) if name in parquet.schema_arrow.names else None
