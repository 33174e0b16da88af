"""What dead runs have staged is removed, and what a load of theirs has stays. A run may have staged for many tables."""

from pathlib import Path

from pyarrow import fs

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.loads.load import FileContent, Load, StagedFile, StagedRows
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.model import StreamId, TableName, WriteMode
from dagster_airbyte_proto.sync.commit.dead_run_files import DeadRunFiles
from dagster_airbyte_proto.testing.folder.tables import FolderTables

_TABLES = 40


class _LakeStorage(Storage):
    """Has a folder of this machine for a lake, and counts the places in it that were looked up."""

    def __init__(self, lake: Path) -> None:
        super().__init__()
        self._lake = lake
        self.lookups = 0

    def at(self, location: str) -> tuple[fs.FileSystem, str]:
        self.lookups += 1
        return fs.LocalFileSystem(), f"{self._lake}/{location.removeprefix('lake:').lstrip('/')}"


def _part(number: int, path: str) -> StagedRows:
    name = f"s{number}"
    file = StagedFile(path, FileContent.ROWS, 1, 4)
    return StagedRows(StreamId.of(name), TableName("shop", name), WriteMode.APPEND, files=(file,), rows=1)


def test_each_file_of_a_load_is_looked_up_for_the_folder_of_its_own_table(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/state.db")
    folders = [f"lake://shop/s{number}/data/run-dead-1" for number in range(_TABLES)]
    # The last file lies in the folder of the first table, and is spelled in another way.
    paths = [*(f"{folder}/rows.parquet" for folder in folders), "lake:///shop/s0/data/run-dead-1/more.parquet"]
    files = [tmp_path / "shop" / f"s{number}" / "data" / "run-dead-1" / "rows.parquet" for number in range(_TABLES)]
    files.append(files[0].with_name("more.parquet"))
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"rows")
    dead = store.acquire("shop", run_id="dead", holder="a process that died", seconds=60)
    store.note_folders(dead, folders)
    store.announce(dead, Load("l1", "shop", "dead", tuple(_part(*each) for each in enumerate(paths)), ()))
    store.release(dead)
    tables = FolderTables(tmp_path)
    tables.storage = storage = _LakeStorage(tmp_path)
    lease = store.acquire("shop", run_id="next", holder="two", seconds=60)
    DeadRunFiles(store, lambda: tables, lease).remove(())
    assert all(file.exists() for file in files)
    assert store.unfinished_folders(lease) == []
    # Twice for each table: its folder, its own file, and the one that is spelled otherwise.
    assert storage.lookups <= 6 * _TABLES
