"""`status`. Slow modules are imported when the command runs; see call.py."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from dagster_airbyte_proto.checkpoints.slot import partition_option
from dagster_airbyte_proto.cli.call import Call, command_in
from dagster_airbyte_proto.cli.output import Answer, Grid, plain
from dagster_airbyte_proto.cli.program import program
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.plurals import counted

if TYPE_CHECKING:
    from dagster_airbyte_proto.diagnosis.connection_status import ConnectionStatus
    from dagster_airbyte_proto.diagnosis.refused_run import RefusedRun

_COLUMNS = ("connection", "last sync", "ended", "took", "rows", "lag", "last ten")
_BARS = "▁▂▃▄▅▆▇█"
_NO_BAR = "·"
_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_ERROR_CHARACTERS = 200
_MAX_STREAMS = 5


@command_in(program, "status")
@click.argument("connections", nargs=-1, metavar="[C]...")
def status(call: Call, connections: tuple[str, ...]) -> Answer:
    """Shows all connections at a glance: their last sync, its rows, how far they lag, and what fails.

    Lag is the time since the last complete sync. Connections that never synced are shown if you name their files.
    """
    from dagster_airbyte_proto.diagnosis.connection_status import NEVER, ConnectionStatus, connection_status
    from dagster_airbyte_proto.diagnosis.refused_run import refused_run

    named, faults = [], []
    for connection in connections:
        try:
            named.append(call.known_connection_target(connection).name)
        except ConfigError as error:
            faults.append(str(error))
    call.connection = None
    store, now = call.existing_store(), datetime.now(UTC)
    if store is None:
        found = [ConnectionStatus(name, NEVER) for name in sorted({*named})]
    else:
        logs = call.settings().logs_folder
        found = [
            connection_status(store, name)._replace(refused=refused_run(store, name, logs))
            for name in sorted({*store.connections(), *named})
        ]
    value: dict[str, Any] = {"connections": [_value(each, now) for each in found]}
    if faults:
        value["errors"] = faults
    errors = [f"error: {fault}" for fault in faults]
    if not found:
        return Answer(value, ("no connection has synced into this state store yet", *errors), _exit_code(faults))
    return Answer(value, (*status_parts(found, now), *errors), _exit_code(faults))


def status_parts(found: "Sequence[ConnectionStatus]", now: datetime) -> list[str | Grid]:
    """The status of these connections for people: a table, and lines about what is not well."""
    table = Grid(_COLUMNS, [_row(each, now) for each in found], counts=("rows",))
    return [table, *_notes(found, now)]


def _exit_code(faults: Sequence[str]) -> int:
    """That of a wrong file, which takes no other connection out of the table."""
    return 2 if faults else 0


def _row(each: "ConnectionStatus", now: datetime) -> tuple[Any, ...]:
    took = each.ended_at - each.started_at if each.ended_at and each.started_at else None
    lag = each.lag_seconds(now)
    return (
        each.connection,
        each.status + (f" [{each.newest_partition}]" if each.newest_partition else ""),
        f"{_span((now - each.ended_at).total_seconds())} ago" if each.ended_at else "",
        _span(took.total_seconds()) if took is not None else "",
        each.rows if each.ended_at else "",
        _span(lag) if lag is not None else "never" if each.started_at else "",
        sparkline(each.rows_by_run),
    )


def _notes(found: "Sequence[ConnectionStatus]", now: datetime) -> Iterator[str]:
    from dagster_airbyte_proto.sync.maintenance.stored_partitions import named_partitions

    for each in found:
        name = each.connection
        if each.error:
            yield f"{name}: {_first_line(each.error)}"
        if each.refused is not None:
            ago = _span((now - each.refused.at).total_seconds())
            yield f"{name}: a run was refused {ago} ago: {_first_line(each.refused.error)}"
        failing = [(stream, error) for stream, error in each.failing.items() if error != each.error]
        for stream, error in failing[:_MAX_STREAMS]:
            yield f"{name}: {stream}: {_first_line(error)}"
        if len(failing) > _MAX_STREAMS:
            yield f"{name}: {counted(len(failing) - _MAX_STREAMS, 'more stream')} failed; --json has all"
        if each.rejected:
            yield f"{name}: {counted(each.rejected, 'row')} rejected"
        if each.uncommitted:
            yield f"{name}: {counted(each.uncommitted, 'row')} not committed yet"
        if each.running_partitions:
            yield f"{name}: runs of partitions work now: {named_partitions(each.running_partitions)}"
        if each.unfinished_loads:
            yield f"{name}: {_unfinished_text(each)}"
        if (oldest := each.oldest_stream) is not None:
            at = each.stream_complete_at[oldest]
            when = f"last complete {_span((now - at).total_seconds())} ago" if at else "not complete in the last syncs"
            yield f"{name}: oldest stream {oldest}: {when}"


def _unfinished_text(each: "ConnectionStatus") -> str:
    from dagster_airbyte_proto.sync.maintenance.stored_partitions import partitions_text

    loads, keys = counted(each.unfinished_loads, "load"), each.unfinished_partitions
    of_partitions = f", of {partitions_text(keys)}," if keys else ""
    # While other partitions are synced, only one can be recovered.
    option = partition_option(keys[0]) if keys and (len(keys) == 1 or each.running_partitions) else ""
    command = f"airbyte-proto {'sync' if each.unfinished_is_relayed else 'recover'} {each.connection}{option}"
    return f"{loads} of a dead run{of_partitions} may have landed; {command} finds out"


def _first_line(text: str) -> str:
    return plain(text.strip().partition("\n")[0], max_characters=_ERROR_CHARACTERS)


def sparkline(rows: Sequence[int | None]) -> str:
    """A bar for each number, as high as its part of the greatest; a dot for None."""
    most = max((number for number in rows if number), default=0)
    bars = (
        _NO_BAR if number is None else _BARS[round(number * (len(_BARS) - 1) / most) if most else 0] for number in rows
    )
    return "".join(bars)


def _span(seconds: float) -> str:
    """`0.3 s`, `45 s`, `12 min`, `3.5 h`, `2.0 d`."""
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), _UNITS[-1])
    number = max(seconds, 0.0) / size
    return f"{number:.1f} {unit}" if number < 10 else f"{number:.0f} {unit}"


def _value(each: "ConnectionStatus", now: datetime) -> dict[str, Any]:
    def time(at: datetime | None) -> str | None:
        return at.isoformat() if at else None

    took = each.ended_at - each.started_at if each.ended_at and each.started_at else None
    return {
        "connection": each.connection,
        "status": each.status,
        "started_at": time(each.started_at),
        "ended_at": time(each.ended_at),
        "seconds": took.total_seconds() if took is not None else None,
        "partition": each.partition or None,
        "rows": each.rows,
        "rejected": each.rejected,
        "uncommitted": each.uncommitted,
        "unknown": each.unknown,
        "unfinished_loads": each.unfinished_loads,
        "unfinished_partitions": list(each.unfinished_partitions),
        "running_partitions": list(each.running_partitions),
        "error": each.error,
        "failing": dict(each.failing),
        "complete_at": time(each.complete_at),
        "lag_seconds": each.lag_seconds(now),
        "oldest_stream": each.oldest_stream,
        "streams": {name: time(at) for name, at in each.stream_complete_at.items()},
        "rows_by_run": list(each.rows_by_run),
        "refused": _refused_value(each.refused),
    }


def _refused_value(refused: "RefusedRun | None") -> dict[str, str] | None:
    if refused is None:
        return None
    return {"at": refused.at.isoformat(), "error": refused.error, "log": str(refused.log)}
