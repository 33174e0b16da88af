"""A push: rows of a table or query go to a destination connector, and a table of ours remembers what it has.

1. *plan*: Spark finds out which rows are new, and writes them down (`planning.py`). From then on the plan is sealed: a
   run that dies is continued in it.
2. *deliver*: batch by batch the rows are announced in the store, sent, and acknowledged by the destination
   (`delivery.py`). Rows to write come first, removals after all of them.
3. *fold*: what was acknowledged goes into the delivered table, as a load like any other, and the state moves with it
   (`fold.py`).
"""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagster_airbyte_proto.connection import Connection
    from dagster_airbyte_proto.sync.push_report import PushReport


def push(
    connection: "Connection",
    *,
    home: Path | str | None = None,
    settings: Path | str | None = None,
    streams: Collection[str] | None = None,
    plan: bool = False,
    full: bool = False,
) -> "PushReport":
    """Runs one push and returns its report; raises ProtoError when it cannot begin.

    With `plan` nothing is sent: the report says what would be. A `full` push takes nothing for delivered.
    """
    from dagster_airbyte_proto.project_folder import home_folder
    from dagster_airbyte_proto.settings import Settings
    from dagster_airbyte_proto.sync.engine import Engine
    from dagster_airbyte_proto.sync.push.push_context import PushRequest
    from dagster_airbyte_proto.sync.push.run import push_connection

    with Engine(Settings.load(home_folder(home), settings)) as engine:
        return push_connection(engine, connection, PushRequest(streams, only_plans=plan, is_full=full))
