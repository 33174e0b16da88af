"""`spec`, `check` and `discover`. Slow modules are imported when a command runs; see call.py."""

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dagster_airbyte_proto.cli.call import Call, command_in
from dagster_airbyte_proto.cli.commands.partition_options import partition_options, partition_slice
from dagster_airbyte_proto.cli.output import Answer, Grid, error_value, short
from dagster_airbyte_proto.cli.program import program
from dagster_airbyte_proto.cli.progress import log_line
from dagster_airbyte_proto.json_references import branches_in, names_in, properties_in
from dagster_airbyte_proto.stack_traces import without_stack_traces

if TYPE_CHECKING:
    from dagster_airbyte_proto.connection import Connection
    from dagster_airbyte_proto.errors import ConfigError
    from dagster_airbyte_proto.model import Catalog, FieldPath, Stream
    from dagster_airbyte_proto.protocols.events import CheckEvent
    from dagster_airbyte_proto.sync.connector.destination import Destination
    from dagster_airbyte_proto.sync.connector.source import Source
    from dagster_airbyte_proto.sync.engine import Engine
    from dagster_airbyte_proto.sync.plan.stream_plan import Slice
    from dagster_airbyte_proto.sync.run_log import RunLog

_SPEC = ("field", "type", "required", "secret", "default", "description")
_OPERATIONS = ("object", "sync mode", "matching keys", "fields")
_DESTINATION_STREAMS = ("stream", "fields", "options")
_STREAMS = ("stream", "read modes", "primary key", "cursor", "columns")


class ConnectorSession(NamedTuple):
    """An opened connector, and the engine of its home folder."""

    engine: "Engine"
    source: "Source"


@contextmanager
def open_connector(call: Call, connection_file: str, partition: "Slice | None" = None) -> Iterator[ConnectorSession]:
    """Opens the connector of a connection. Without a partition, templates in the config are not filled."""
    from dagster_airbyte_proto.sync.connector.opened_connector import opened_source

    connection = call.open(connection_file)
    words = partition.template_values if partition else None
    on_line = partial(show_log_line, is_verbose=call.is_verbose)
    with call.engine() as engine, opened_source(engine, connection, words, on_line=on_line) as source:
        yield ConnectorSession(engine, source)


@command_in(program, "spec")
@click.argument("connection_file", metavar="C")
def spec(call: Call, connection_file: str) -> Answer:
    """Shows the config that the connector takes."""
    if _takes_rows(call.open(connection_file)):
        with _open_destination(call, connection_file) as destination:
            found = destination.spec(fresh=True)
    else:
        with open_connector(call, connection_file) as (_, source):
            found = source.spec(fresh=True)
    rows = list(_fields(found.config_schema, ""))
    grid = Grid(_SPEC, rows, texts=("field", "type", "default", "description"))
    return Answer(
        {"connection": call.connection, "spec": found.message},
        (grid if rows else f"{call.connection}: the connector declares no fields", *_granted(found.message)),
    )


def _granted(message: Mapping[str, Any]) -> list[str]:
    """Returns lines that say what a component gets of this machine, which its launcher adds to its specification."""
    grants = message.get("grants")
    return ["It gets of this machine:", *(f"  {each}" for each in grants)] if isinstance(grants, list) else []


@command_in(program, "check")
@click.argument("connection_file", metavar="C")
@partition_options
def check(call: Call, connection_file: str, partition: str | None, window: tuple[str, ...]) -> Answer:
    """Runs the connector's check of the config, and checks the streams against the saved catalog."""
    return check_connection(call, connection_file, partition_slice(partition, window))


def _takes_rows(connection: "Connection") -> bool:
    """True for the connection of a destination or an enrichment."""
    return connection.push is not None or connection.connector.protocol == "syncmaven"


@contextmanager
def _open_destination(call: Call, connection_file: str) -> "Iterator[Destination]":
    """Opens the connector of a connection that takes rows."""
    from dagster_airbyte_proto.sync.connector.opened_connector import opened_destination

    connection = call.open(connection_file)
    on_line = partial(show_log_line, is_verbose=call.is_verbose)
    with call.engine() as engine, opened_destination(engine, connection, on_line=on_line) as destination:
        yield destination


def _check_destination(call: Call, connection_file: str) -> Answer:
    """Runs the destination's check of its config, and checks that it takes the modes of the pushed streams."""
    from dagster_airbyte_proto.masking import UnmaskedText
    from dagster_airbyte_proto.model import StreamId
    from dagster_airbyte_proto.protocols.events import CheckEvent
    from dagster_airbyte_proto.sync.push.run import refused_by_spec, refused_streams

    with _open_destination(call, connection_file) as destination:
        if len(refused_by_spec(destination)) < len(destination.connection.push or {}):
            verdict = destination.check()
        else:  # A tap would read all that it has.
            verdict = CheckEvent(False, UnmaskedText("its connector was not started, for it takes none of the streams"))
        message = destination.mask.text(verdict.message)
        streams = [StreamId.of(name) for name in destination.connection.push or {}]
        faults = list(refused_streams(destination, streams, fresh=True).values())
        if destination.connection.enrichments:
            with call.engine() as engine:
                faults += _transform_faults(engine, destination.connection, destination.log)
    status = "succeeded" if verdict.succeeded and not faults else "failed"
    shown = message if call.is_verbose else without_stack_traces(message)
    lines = [f"{call.connection}: check {status}" + (f": {shown}" if shown else "")]
    lines += [f"error: {fault}" for fault in faults]
    value = {
        "connection": call.connection,
        "status": status,
        "message": message,
        "streams_checked": True,
        "stream_errors": [error_value(fault) for fault in faults],
    }
    return Answer(value, tuple(lines), 2 if faults else 0 if verdict.succeeded else 1)


def _check_enrichment(call: Call, connection_file: str) -> Answer:
    """Checks that the connector is an enrichment, and that its config fits its schema."""
    from dagster_airbyte_proto.sync.enrichment.enrichment_process import check_connector

    with _open_destination(call, connection_file) as enrichment:
        check_connector(enrichment, f"checking connection {call.connection}")
    message = "it is an enrichment, for the transforms of a connection or a frame of Spark"
    value = {"connection": call.connection, "status": "succeeded", "message": message}
    return Answer({**value, "streams_checked": False, "stream_errors": []}, (f"{call.connection}: {message}",))


def check_connection(call: Call, connection_file: str, partition: "Slice | None" = None) -> Answer:
    """Runs the connector's check of its config, checks the streams, and returns the answer of the command."""
    if (connection := call.open(connection_file)).push is not None:
        return _check_destination(call, connection_file)
    if _takes_rows(connection):
        return _check_enrichment(call, connection_file)
    with open_connector(call, connection_file, partition) as (engine, source):
        verdict = source.check()
        message = source.mask.text(verdict.message)
        to = source.connection.relay_destination
        if to is not None and verdict.succeeded:
            verdict, message, faults = _checked_relay(call, engine, source, to)
        else:
            faults = _stream_faults(engine, source)
        if transform_faults := _transform_faults(engine, source.connection, source.log):
            faults = [*(faults or ()), *transform_faults]
    shown = message if call.is_verbose else without_stack_traces(message)
    status = "succeeded" if verdict.succeeded and not faults else "failed"
    lines = [f"{call.connection}: check {status}" + (f": {shown}" if shown else "")]
    if not verdict.succeeded:
        lines.append(f"log: {source.log_path}")
    elif faults is None:
        lines.append(
            "warning: the names and options of its streams are not checked, for no catalog is saved; run "
            f"`airbyte-proto discover {shlex.quote(connection_file)} --save`, then `check` again"
        )
    lines += [f"error: {fault}" for fault in faults or ()]
    value = {
        "connection": call.connection,
        "status": status,
        "message": message,
        "streams_checked": faults is not None,
        "stream_errors": [error_value(fault) for fault in faults or ()],
    }
    return Answer(value, tuple(lines), 2 if faults else 0 if verdict.succeeded else 1)


def _checked_relay(
    call: Call, engine: "Engine", source: "Source", to: "Connection"
) -> "tuple[CheckEvent, str, list[ConfigError] | None]":
    """The verdict of the destination of a relay, its words, and the faults of the streams."""
    from dagster_airbyte_proto.sync.connector.destination_catalog import offered_operations
    from dagster_airbyte_proto.sync.connector.opened_connector import opened_destination

    on_line = partial(show_log_line, is_verbose=call.is_verbose)
    with opened_destination(engine, to, on_line=on_line) as destination:
        verdict = destination.check()
        message = destination.mask.text(verdict.message)
        if not verdict.succeeded:
            return verdict, f"the destination: {message or 'it refuses'}", _stream_faults(engine, source)
        offered_operations(destination, fresh=True)
        return verdict, message, _stream_faults(engine, source, destination)


def _transform_faults(engine: "Engine", connection: "Connection", log: "RunLog") -> "list[ConfigError]":
    """The fault of a connector among the transforms."""
    from dagster_airbyte_proto.errors import ConfigError
    from dagster_airbyte_proto.sync.enrichment.stream_enrichment import check_enrichers

    try:
        check_enrichers(engine, connection, log)
    except ConfigError as error:
        return [error]
    return []


def _stream_faults(
    engine: "Engine", source: "Source", destination: "Destination | None" = None
) -> "list[ConfigError] | None":
    """The faults of the connection's streams by its saved catalog, or the file that it names; None without either."""
    from dagster_airbyte_proto.sync.plan.stream_check import StreamCheck
    from dagster_airbyte_proto.sync.relay.relay_tables import RELAY_ABILITIES

    connection = source.connection
    if connection.connector.catalog_file is not None:
        catalog = source.catalog()
    else:
        saved = engine.answer_cache.saved_catalog(connection.name)
        if saved.warning:
            show_log_line("WARN", saved.warning)
        if saved.message is None:
            return None
        catalog = source.protocol.catalog(saved.message)
    schemas = source.stream_schemas() if source.protocol.sends_schemas else {}
    abilities = engine.abilities if connection.to is None else RELAY_ABILITIES
    return StreamCheck(connection, catalog, abilities, schemas, destination).faults()


@command_in(program, "discover")
@click.argument("connection_file", metavar="C")
@click.option("--save", is_flag=True, help="Save the catalog that assets are made from, and show what changed.")
@partition_options
def discover(call: Call, connection_file: str, save: bool, partition: str | None, window: tuple[str, ...]) -> Answer:
    """Lists the streams of the connector, or the objects of a destination that has a catalog."""
    if call.open(connection_file).push is not None:
        if save:
            raise click.UsageError("--save is for the streams of a source; the objects of a destination are not saved")
        return _discover_destination(call, connection_file)
    with open_connector(call, connection_file, partition_slice(partition, window)) as (engine, source):
        source.check_config()
        catalog = source.catalog(fresh=True)
        saved = _save(engine, source, catalog) if save else {}
    rows = [_stream_row(stream) for stream in (*catalog.streams, *catalog.duplicates)]
    value = {
        "connection": call.connection,
        "streams": {str(stream.id): _stream_value(stream) for stream in catalog.streams},
        **saved,
    }
    grid = Grid(_STREAMS, rows, texts=("read modes", "primary key", "columns"))
    listed = grid if rows else f"{call.connection}: the connector offers no stream"
    return Answer(value, (listed, *_saved_lines(saved)), 2 if saved.get("stream_errors") else 0)


def _discover_destination(call: Call, connection_file: str) -> Answer:
    from dagster_airbyte_proto.sync.connector.destination_catalog import may_have_catalog, offered_operations

    with _open_destination(call, connection_file) as destination:
        destination.check_config()
        operations = offered_operations(destination, fresh=True)
        takes_any = "the destination has no catalog: it takes any stream"
        if may_have_catalog(destination):
            takes_any = "the destination gave no catalog, and does not say whether it has one"
    streams = {
        each.object_name: {"row_schema": each.row_schema, "options_schema": each.options_schema}
        for each in operations
        if not each.mode
    }
    listed = [
        {
            "object_name": each.object_name,
            "sync_mode": each.mode,
            "matching_keys": each.matching_keys,
            "row_schema": each.row_schema,
        }
        for each in operations
        if each.mode
    ]
    value = {"connection": call.connection, "operations": listed} | ({"streams": streams} if streams else {})
    if not operations:
        return Answer(value, (f"{call.connection}: {takes_any}",))
    if streams:
        fields = [(each.object_name, _members(each.row_schema), _members(each.options_schema)) for each in operations]
        return Answer(value, (Grid(_DESTINATION_STREAMS, fields, texts=("fields", "options")),))
    rows = [
        (
            each.object_name,
            each.mode,
            ", ".join("+".join(key) for key in each.matching_keys),
            _members(each.row_schema),
        )
        for each in operations
    ]
    return Answer(value, (Grid(_OPERATIONS, rows, texts=("matching keys", "fields")),))


def _members(schema: "Mapping[str, Any] | None") -> str:
    """The members of an object by its JSON Schema, those that it must have marked with a star."""
    properties, required = (schema or {}).get("properties"), (schema or {}).get("required")
    if not isinstance(properties, dict):
        return "any"
    must = required if isinstance(required, list) else []
    return ", ".join(f"{name}*" if name in must else name for name in properties)


def show_log_line(level: str, text: str, *, is_verbose: bool = False) -> None:
    """Shows a line of the connector's log on stderr."""
    if line := log_line(level, text, is_verbose=is_verbose):
        sys.stderr.write(f"{line}\n")


def _save(engine: "Engine", source: "Source", catalog: "Catalog") -> dict[str, Any]:
    """Saves the catalog, unless no assets could be made from it; returns the path, the changes and the faults."""
    from dagster_airbyte_proto.sync.connector.catalog_changes import catalog_changes, in_former_order, saved_before
    from dagster_airbyte_proto.sync.plan.stream_check import asset_faults, lasting_refusals

    name = source.connection.name
    before = saved_before(engine.answer_cache, source.protocol, name)
    if before.warning:
        show_log_line("WARN", before.warning)
    faults, path = asset_faults(source.connection, catalog), None
    if not faults:
        message = source.protocol.catalog_message(in_former_order(catalog, before.catalog))
        path = str(engine.answer_cache.save_catalog(name, message))
        for fault in lasting_refusals(source.connection, catalog):
            show_log_line("WARN", f"syncs refuse stream {fault.stream}: {fault.found}. {fault.remedy}")
    changes = catalog_changes(before.catalog, catalog)
    return {"saved": path, "changes": changes, "stream_errors": [error_value(fault) for fault in faults]}


def _saved_lines(saved: Mapping[str, Any]) -> list[str]:
    if not saved:
        return []
    changes = saved["changes"] or ["nothing changed"]
    if saved["saved"]:
        return [f"saved to {saved['saved']}", *changes]
    refused = "not saved, for no assets could be made from it: correct the connection, then save again"
    return [*changes, refused, *(f"error: {error['message']}" for error in saved["stream_errors"])]


def _stream_row(stream: "Stream") -> tuple[str, ...]:
    columns = properties_in(stream.json_schema)
    modes = ", ".join(mode.value for mode in stream.read_modes)
    keys = ", ".join(_path_text(path) for path in stream.primary_key)
    return (str(stream.id), modes, keys, _path_text(stream.cursor), ", ".join(columns))


def _stream_value(stream: "Stream") -> dict[str, Any]:
    return {
        "name": stream.id.name,
        "namespace": stream.id.namespace,
        "read_modes": [mode.value for mode in stream.read_modes],
        "primary_key": [list(path) for path in stream.primary_key],
        "cursor": list(stream.cursor),
        "columns": dict(properties_in(stream.json_schema)),
    }


def _path_text(path: "FieldPath") -> str:
    return ".".join(path)


def _fields(schema: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, ...]]:
    """A row for each field of the config; fields of a choice (oneOf) are prefixed with its title."""
    required = names_in(schema.get("required"))
    for name, rule in properties_in(schema).items():
        if not isinstance(rule, Mapping):
            continue
        yield (
            prefix + name,
            _type_text(rule),
            "yes" if name in required else "",
            "yes" if rule.get("airbyte_secret") else "",
            short(rule.get("default", rule.get("const"))),
            short(rule.get("description")),
        )
        yield from _fields(rule, f"{prefix}{name}.")
        for branch in branches_in(rule.get("oneOf")):
            yield from _fields(branch, f"{prefix}{name} ({branch.get('title', 'one of')}).")


def _type_text(rule: Mapping[str, Any]) -> str:
    return " or ".join(names_in(rule.get("type", "one of" if "oneOf" in rule else "")))
