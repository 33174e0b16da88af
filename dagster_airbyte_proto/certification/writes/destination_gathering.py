"""Gathers the evidence of a destination: the short requests, and writes of rows to objects of certify's own.

No state is saved, and no table of ours is read. Configs that the destination writes back are kept, as for sources.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from dagster_airbyte_proto.certification.evidence import Reply
from dagster_airbyte_proto.certification.short_requests import checks_of_bad_configs, secrets_of
from dagster_airbyte_proto.certification.watching.secret_watch import SecretWatch, WatchedLog
from dagster_airbyte_proto.certification.watching.watched_program import Gathering, Scratch, WatchedProgram
from dagster_airbyte_proto.certification.writes.own_objects import (
    check_config,
    check_discover,
    check_names,
    fixed_names,
)
from dagster_airbyte_proto.certification.writes.scratch_rows import KEY, KINDS
from dagster_airbyte_proto.certification.writes.write_evidence import DestinationEvidence
from dagster_airbyte_proto.certification.writes.write_series import WriteSeries, WriteTarget
from dagster_airbyte_proto.checkpoints.kept_values import ValueStore
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import PushMode, StreamId
from dagster_airbyte_proto.protocols.destination import DestinationOperation, HasCatalog, PushedStream
from dagster_airbyte_proto.protocols.events import SpecEvent
from dagster_airbyte_proto.sync.connector.destination import Destination
from dagster_airbyte_proto.sync.connector.destination_catalog import offered_operations, row_schema_of
from dagster_airbyte_proto.sync.connector.launcher_choice import destination_protocol_of
from dagster_airbyte_proto.sync.connector.opened_connector import opened_destination
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.run_log import RunLog

_MODES = (PushMode.UPSERT, PushMode.APPEND, PushMode.UPDATE)


def gather_destination(engine: Engine, connection: Connection, options: Gathering) -> DestinationEvidence:
    """Runs the destination. Raises ConfigError if the connection's own config is bad, if its connector is a source, or
    if it takes no rows of certify's, or would put them into an object of the user's."""
    if connection.connector.launch.kind == "replay":
        raise ConfigError(
            f"certifying connection {connection.name}",
            "a recording of a destination takes the rows that were recorded, and no others",
            remedy="Name the destination itself under `launch`.",
        )
    watch = SecretWatch()

    def new_log(folder: Path, run_id: str, on_line: Callable[[str, str], None]) -> RunLog:
        return WatchedLog(folder, run_id, watch=watch, on_line=on_line)

    with opened_destination(engine, connection, on_line=options.on_line, new_log=new_log) as destination:
        takes_any_name = destination.protocol.has_catalog is not HasCatalog.ALWAYS
        if takes_any_name and not options.scratch.may_overwrite:
            check_config(connection, destination.config.current)
        started_at = time.monotonic()
        watched = WatchedProgram(destination, watch, options, lambda line: destination.protocol.reply(line))
        with watched.watched():
            evidence = _gathered(watched, engine.store)
        seconds = time.monotonic() - started_at
        # The last mask: whatever was met earlier is shown with the secrets hidden that came up since.
        return replace(evidence, mask=watch.mask, leaks=watch.leaks, steps=tuple(watched.steps), seconds=seconds)


def objects_to_write(connection: Connection, scratch: Scratch) -> tuple[str, ...]:
    """The names of the objects that certify would write to; one where destinations have objects of their own."""
    protocol = destination_protocol_of(connection)
    if protocol.has_catalog is HasCatalog.ALWAYS:
        return (scratch.name,)
    return scratch.objects[:2] if protocol.takes_batches else scratch.objects


def _gathered(watched: WatchedProgram[Destination], values: ValueStore) -> DestinationEvidence:
    destination, seconds = watched.connector, watched.options.bounds.query_seconds
    watched.options.on_step("what it is")
    connector = destination.identity  # This installs a package, which is not the connector's own time.
    spec = watched.reply("spec", lambda: destination.spec(fresh=True, timeout_seconds=seconds))
    schema = spec.answer.config_schema if spec.answer else {}
    secrets = secrets_of(watched, schema)
    watched.mask_more(secrets)
    evidence = DestinationEvidence(
        connector=connector,
        mask=watched.watch.mask,
        has_secrets=bool(secrets),
        spec=spec,
        acknowledge=destination.connection.acknowledge,
        kinds=KINDS,
    )
    if spec.answer is None:
        return evidence
    destination.check_config()
    check = watched.reply("check", lambda: destination.check(timeout_seconds=seconds))
    discover = watched.reply("discover", lambda: offered_operations(destination, fresh=True))
    if discover.answer is None and destination.protocol.has_catalog is HasCatalog.ALWAYS:
        return replace(evidence, check=check, discover=discover)
    if not watched.options.scratch.may_overwrite:
        check_discover(destination.connection, discover, destination.mask)
    target = _target(watched, spec.answer, discover)
    writes = WriteSeries(watched, target, values).run()
    return replace(
        evidence,
        objects=target.objects,
        fixed_names=() if target.has_objects else fixed_names(destination.config.current),
        mode=target.mode,
        takes_any_rows=target.takes_any_rows,
        check=check,
        bad_checks=checks_of_bad_configs(watched, schema),
        discover=discover,
        **writes._asdict(),
    )


def _target(
    watched: WatchedProgram[Destination], spec: SpecEvent, discover: Reply[tuple[DestinationOperation, ...]]
) -> WriteTarget:
    """The target of all writes: by key where the destination has such a mode. Raises ConfigError."""
    connection, protocol, scratch = watched.connector.connection, watched.connector.protocol, watched.options.scratch
    operations = discover.answer or ()
    refusals = []
    for mode, keys in product(_MODES, (KEY, *_keys_of(operations, scratch.name))):
        stream = PushedStream(StreamId.of(scratch.name), {}, mode, keys)
        why = protocol.refusal(spec, mode) or (protocol.mismatch(operations, stream) if operations else None)
        if why is not None:
            refusals.append(why)
        elif not operations:
            objects = objects_to_write(connection, scratch)
            check_names(connection, objects)
            return WriteTarget(objects, mode, keys)
        else:
            pushed = (connection.push or {}).get(scratch.name)
            schema = row_schema_of(protocol, operations, stream)
            options = pushed.options if pushed else {}
            return WriteTarget((scratch.name,), mode, keys, has_objects=True, row_schema=schema, options=options)
    remedy = "Name one of its objects by --object: certify writes to it." if operations else ""
    raise ConfigError(f"certifying connection {connection.name}", refusals[0], remedy=remedy)


def _keys_of(operations: Sequence[DestinationOperation], name: str) -> list[tuple[str, ...]]:
    return [key for each in operations if each.object_name == name for key in each.matching_keys]
