"""The engine: connectors' records into tables. `sync` is the whole of it in one call, with no Dagster."""

import sys
from collections.abc import Collection
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagster_airbyte_proto.connection import Connection
    from dagster_airbyte_proto.sync.report import SyncReport


def sync(
    connection: "Connection",
    *,
    home: Path | str = ".airbyte-proto",
    settings: Path | None = None,
    streams: Collection[str] | None = None,
    refresh: bool = False,
    merge: bool = False,
) -> "SyncReport":
    """Runs one sync and returns its report; raises ProtoError when it cannot begin.

    A `refresh` reads everything anew, in the place of what the tables have, or with `merge` beside it.
    For several syncs in one process make one `engine.Engine` and call `run.sync_connection`: they share its session.
    """
    # Spark's and Arrow's modules take a second to import, which those who need a lease only should not wait for.
    from dagster_airbyte_proto.settings import Settings
    from dagster_airbyte_proto.sync.engine import Engine
    from dagster_airbyte_proto.sync.plan.stream_plan import Wanted
    from dagster_airbyte_proto.sync.run import sync_connection

    with Engine(Settings.load(Path(home), settings)) as engine:
        return sync_connection(engine, connection, Wanted(streams, refresh, merges=merge))


class _CallableModule(ModuleType):
    """`from dagster_airbyte_proto import sync` finds this module, which bears the function's name: so it is called."""

    def __call__(self, *args: Any, **kwargs: Any) -> "SyncReport":
        return sync(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
