"""Recognizes a warehouse whose disk is not mounted: an empty folder where loads of a connection have landed.

In an empty folder every table is missing, so nothing contradicts the store. A full refresh would fill new tables
beneath the disk. They vanish when it is mounted, and with them rows that the sync has called complete. A push would
begin a new memory of what it has delivered.

The place of the tables is that of the files that landed in them: it depends on no setting, format or catalog. A folder
that lacks some tables was cleared by somebody, and is no such case.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from dagster_airbyte_proto.checkpoints.store import LoggedLoad, StateStore
from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.storage import folder_name, is_local, without_file_scheme
from dagster_airbyte_proto.model import TableName

_LOADS = 4
"""So many loads are looked at: the newest may have brought no file to a table."""


def check_is_mounted(store: StateStore, connection: str, remedy: str) -> None:
    """Raises TableError where the newest loads of the connection have landed in a folder of this machine that is empty
    now, or that cannot be read. `remedy` is for a folder that was emptied on purpose."""
    doing = f"looking at the warehouse before rows land in it, for connection {connection}"
    warehouse = next((place for logged in store.loads(connection, limit=_LOADS) for place in _places(logged)), None)
    if warehouse is None:
        return
    try:
        emptied = _emptied(warehouse)
    except OSError as error:
        found = f"{error.filename}: {error.strerror}"
        raise TableError(doing, found, remedy="Mount its disk, or give this user the right to read it.") from error
    if emptied is not None:
        found = f"{emptied} is empty, and loads have landed in tables there: most likely its disk is not mounted"
        raise TableError(doing, found, remedy=f"Mount it. If all tables were deleted on purpose: {remedy}")


def _places(logged: LoggedLoad) -> Iterator[Path]:
    """The warehouses of the tables in which a load has landed, without the table's namespace and name."""
    landed = {committed.stream for committed in logged.committed}
    for part in logged.load.parts:
        if part.stream in landed and not part.is_relayed and part.files and is_local(part.files[0].path):
            yield from _above(Path(without_file_scheme(part.files[0].path)), part.table)


def _above(file: Path, table: TableName) -> Iterator[Path]:
    """The folder that has the folder of the table's namespace; nothing where tables have folders of other names."""
    for folder in file.parents:
        if [folder.parent.name, folder.name] in ([*table], [folder_name(part) for part in table]):
            yield folder.parent.parent
            return


def _emptied(warehouse: Path) -> Path | None:
    """The deepest folder that is there of those that lead to the warehouse, if nothing is in it."""
    place = Path(os.path.realpath(warehouse))  # A link may lead to the disk.
    for folder in (place, *place.parents):
        try:
            return None if any(folder.iterdir()) else folder
        except FileNotFoundError:
            continue
    return None
