"""The partition that a push is of: the rows of one partition are sent, and compared with what was delivered in it.

The destination knows no partitions: a row is the same row by its key, in whichever partition it stands. So the
delivered table remembers for each row the partition in which it was delivered last, and a row is removed only by a push
of that one.
"""

from dagster_airbyte_proto.connection import PushOptions
from dagster_airbyte_proto.connection.templating import fill_sql_templates, has_template
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.plan_query import PushedPartition
from dagster_airbyte_proto.loads.table import SLICE_COLUMN
from dagster_airbyte_proto.model import ChangesBy, PushMode, StreamId
from dagster_airbyte_proto.sync.plan.stream_plan import Slice
from dagster_airbyte_proto.sync.push.push_context import PushRequest
from dagster_airbyte_proto.tables.sql_names import text_literal


def pushed_partition(request: PushRequest, stream: StreamId, options: PushOptions) -> PushedPartition | None:
    """Returns the partition that is asked for, if one is. Raises ConfigError where the stream cannot be pushed so."""
    is_template = has_template(options.sql or "")
    if request.partition is None:
        if is_template:
            raise _refused(stream, "its query has a template of a partition", "Push one: --partition KEY.")
        return None
    if request.is_full:
        raise _refused(stream, "--full is of all partitions", "Reset its state, and push each partition.")
    if options.changes_by in (ChangesBy.CURSOR, ChangesBy.SNAPSHOTS):
        raise _refused(stream, f"changes: {options.changes_by} looks at the whole table", "Use changes: diff, or all.")
    if options.mode is PushMode.OVERWRITE:
        raise _refused(stream, "mode overwrite would replace all by one partition", "Use mode mirror.")
    if options.removes_by_version:
        raise _refused(stream, "a version would remove the rows of the others", "Leave out removals: version.")
    if options.table is None and not is_template:
        raise _refused(
            stream,
            "its query is the same for each partition",
            "Select by it: `WHERE day = '{{ partition.key }}'`.",
        )
    return PushedPartition(request.partition.key, None if options.table is None else options.partition or SLICE_COLUMN)


def query_of(partition: Slice, sql: str | None) -> str | None:
    """Returns a query of one partition. Its values are put into the query as parts of text literals."""
    if sql is None:
        return None
    return fill_sql_templates(sql, {name: text_literal(each)[1:-1] for name, each in partition.template_values.items()})


def _refused(stream: StreamId, found: str, remedy: str) -> ConfigError:
    return ConfigError("pushing one partition", found, remedy=remedy, stream=str(stream))
