"""The engine that brings connectors' records into tables. `sync` runs one sync in one call, without Dagster, and
`sync_all` many at once on a cluster."""

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagster_airbyte_proto.connection import Connection
    from dagster_airbyte_proto.sync.report import SyncReport


def sync(
    connection: "Connection",
    *,
    home: Path | str | None = None,
    settings: Path | str | None = None,
    streams: Collection[str] | None = None,
    refresh: bool = False,
    merge: bool = False,
) -> "SyncReport":
    """Runs one sync and returns its report; raises ProtoError when it cannot begin.

    A `refresh` reads everything again from the start and replaces the tables' rows; with `merge` the rows are merged
    into those of the tables. For several syncs in one process make one `engine.Engine` and call `run.sync_connection`:
    they share its Spark session.
    """
    # Importing Spark's and Arrow's modules takes a second. Callers that only need `sync.lease` should not wait for it.
    from dagster_airbyte_proto.project_folder import home_folder
    from dagster_airbyte_proto.settings import Settings
    from dagster_airbyte_proto.sync.engine import Engine
    from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
    from dagster_airbyte_proto.sync.run import sync_connection

    with Engine(Settings.load(home_folder(home), settings)) as engine:
        return sync_connection(engine, connection, SyncRequest(streams, refresh, merges=merge))


def sync_all(
    connections: "Sequence[Connection]",
    session: Any = None,
    *,
    home: Path | str | None = None,
    settings: Path | str | None = None,
) -> "list[SyncReport]":
    """Syncs all streams of these connections at once, each on an executor of a Spark cluster.

    They are the tasks of one job: as many run at a time as there are free cores. Returns a report for each, in their
    order; one that fails takes no other along. `session` is a SparkSession; without it, one is started with the `spark`
    of the settings.
    """
    import threading

    from dagster_airbyte_proto.project_folder import home_folder
    from dagster_airbyte_proto.settings import Settings
    from dagster_airbyte_proto.sync.cluster.many_syncs import sync_connections
    from dagster_airbyte_proto.sync.engine import Engine
    from dagster_airbyte_proto.sync.run_options import RunOptions

    with Engine(Settings.load(home_folder(home), settings), session=session) as engine:
        return sync_connections(engine, connections, RunOptions(threading.Event()))


class _CallableModule(ModuleType):
    """Makes this module callable.

    `from dagster_airbyte_proto import sync` may give this module instead of the function of the same name.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> "SyncReport":
        return sync(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
