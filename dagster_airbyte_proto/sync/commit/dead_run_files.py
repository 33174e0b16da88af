"""Removes the files that dead runs have staged, and that no load has.

The state store knows which runs are dead, and which files their loads have. But it may be older than the tables: a copy
that was made while a run was at work, or a replica that lagged when it took over. Then a run that ended well seems to
be dead, and of loads that it has landed nothing is known: without their files the table has lost rows, and cannot be
read any more.

So before a file goes, the logs of the tables are read that the run has staged for. If one of them has a newest load of
the connection that the store does not know, or cannot be read, the folders of the run stay as they are. The first row
that comes for such a table is refused (`table_witness.py`), and the error names the ways out: with the newer store the
files are those of known loads, and after a refresh the next recovery removes them.

A folder that cannot be looked into, or not be changed, stays too, with the others of its run: the next recovery looks
again.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from dagster_airbyte_proto.checkpoints.store import Lease, StateStore
from dagster_airbyte_proto.errors import CommitUnknown, ConfigError, StagingError, TableError
from dagster_airbyte_proto.loads.storage import LOCAL, Storage, is_local
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.points import reach
from dagster_airbyte_proto.staging.files.staging_folder import (
    has_orphan_files,
    location_of_staged,
    remove_orphan_files,
)
from dagster_airbyte_proto.tables.writer import TableWriter

_LOADS = 100
"""So many of the newest loads show where tables lie that are no stream's: those of pushes, and of rejected rows."""


class DeadRunFiles:
    """The staged files of the dead runs of one leased connection. `tables` is called only when it is needed: a Spark
    session may still be starting."""

    def __init__(self, store: StateStore, tables: Callable[[], TableWriter], lease: Lease) -> None:
        self._store = store
        self._tables = tables
        self._lease = lease

    def remove(self, waiting: Collection[str]) -> None:
        """Removes them, but for those of the runs that are `waiting`, and forgets their folders."""
        noted = self._store.unfinished_folders(self._lease)
        for run_id in dict.fromkeys(run_id for run_id, _ in noted if run_id not in waiting):
            folders = [folder for noting_run, folder in noted if noting_run == run_id]
            kept = _by_folder(self._store.referenced_files(self._lease.connection, run_id), folders)
            try:
                if self._has_orphans(kept) and self._may_have_unknown_loads(folders):
                    continue
                for folder, files in kept.items():
                    remove_orphan_files(folder, files, storage_of(folder, self._tables))
                    reach("recover.swept")
            except StagingError:
                # The place of one table. Streams of others need not wait for it, and no table refers to the files.
                continue
            # After the last folder only: this forgets all folders of the run at once.
            self._store.forget_folders(self._lease, run_id)

    def _has_orphans(self, kept: Mapping[str, Collection[str]]) -> bool:
        return any(has_orphan_files(folder, files, storage_of(folder, self._tables)) for folder, files in kept.items())

    def _may_have_unknown_loads(self, folders: Sequence[str]) -> bool:
        """True if a table of these folders may have loads that the store does not know."""
        names = self._tables_of(folders)
        try:
            found = [self._tables().witness(name, self._lease.connection) for name in names]
        except (ConfigError, TableError, CommitUnknown):  # Nobody can tell now. The next recovery looks again.
            return True
        newest = {each.newest_load for each in found if each is not None and each.newest_load is not None}
        return any(self._store.load(load_id) is None for load_id in newest)

    def _tables_of(self, folders: Sequence[str]) -> Sequence[TableName]:
        profiles = self._store.stream_profiles(self._lease.connection).values()
        places = {each.location.rstrip("/"): each.table for each in profiles if each.location}
        for logged in self._store.loads(self._lease.connection, limit=_LOADS):
            for part in logged.load.parts:
                if part.files and not part.is_relayed:
                    places.setdefault(location_of_staged(part.files[0].path), part.table)
        # A copy of the store may be from before the first preparation of a table has ended.
        unplaced = [each.table for each in profiles if not each.location]
        found: dict[TableName, None] = {}
        for location in map(location_of_staged, folders):
            found |= dict.fromkeys([places[location]] if location in places else unplaced)
        return [*found]


def _by_folder(files: Collection[str], folders: Sequence[str]) -> Mapping[str, Collection[str]]:
    """Returns the files that may lie in each folder: those of its table, and those of none of these tables.

    A run may have files of a thousand tables, and each that may lie in a folder is looked up for it.
    """
    of_tables: dict[str, list[str]] = {location: [] for location in map(location_of_staged, folders) if location}
    elsewhere: list[str] = []
    for file in files:
        of_tables.get(location_of_staged(file), elsewhere).append(file)
    return {folder: [*of_tables.get(location_of_staged(folder), ()), *elsewhere] for folder in folders}


def storage_of(place: str, tables: Callable[[], TableWriter]) -> Storage:
    """The storage of a folder. Only a folder that is not on this machine makes this wait for the tables."""
    return LOCAL if is_local(place) else tables().storage
