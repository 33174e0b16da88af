"""The delivered table of a pushed stream: what the destination has, by key. It is the memory of the push.

- Each row is a key with the hash of the row that was delivered, or was rejected with a reason. A rejected row is not
  sent again until it changes, or somebody asks for it.
- Rows go into it as a load like any other (`fold.py`). So it is recovered, rolled back and repaired as other tables
  are.
- A push that finds out what is new in another way (`changes: cursor` or `all`) has no such table. Then only its state
  moves.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
import pyarrow as pa

from dagster_airbyte_proto.checkpoints.store import NO_LIMIT
from dagster_airbyte_proto.errors import ConfigError, SchemaRefused, TableError
from dagster_airbyte_proto.loads.plan_query import HASH, PARTITION
from dagster_airbyte_proto.loads.push import PushPosition
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget, Witness
from dagster_airbyte_proto.model import MergeMode, SchemaPolicy, StreamId, TableName
from dagster_airbyte_proto.protocols.lookup import PUSH, state_codec_named
from dagster_airbyte_proto.schema.evolution import EvolutionRules
from dagster_airbyte_proto.sync.commit.table_witness import LoadsReadOnce, Remembered, check_witness
from dagster_airbyte_proto.sync.push.push_context import PushContext, full_command, reset_command

NAMESPACE: Final = "_pushes"
DELIVERED, REJECTED = "delivered", "rejected"
_OWN = (
    pa.field(HASH, pa.int64(), metadata={"comment": "Hash of the row as it was delivered"}),
    pa.field("_status", pa.string(), metadata={"comment": "delivered, or rejected"}),
    pa.field("_reason", pa.string(), metadata={"comment": "Why the row was rejected"}),
    pa.field("_row", pa.string(), metadata={"comment": "The rejected row as JSON"}),
    pa.field(PARTITION, pa.string(), metadata={"comment": "The partition in which the row was delivered last"}),
    pa.field("_pushed_at", pa.timestamp("us", "UTC"), metadata={"comment": "When this was written down"}),
)
_KEY_TYPES = (
    pa.types.is_integer, pa.types.is_string, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_date,
    pa.types.is_timestamp, pa.types.is_binary,
)  # fmt: skip
_OWN_NAMES = frozenset(field.name for field in _OWN)
_DOING = "preparing the memory of the push"


def delivered_table_name(connection: str, stream: StreamId) -> TableName:
    return TableName(NAMESPACE, f"{connection}__{stream}")


def delivered_spec(connection: str, stream: StreamId, fields: pa.Schema, keys: Sequence[str]) -> TableSpec:
    """Returns the table for these keys. Raises ConfigError for a key of a type that no table can look up, and for one
    with the name of a column that the table has."""
    if taken := [key for key in keys if key.casefold() in _OWN_NAMES]:
        raise ConfigError(
            _DOING,
            f"the key has {', '.join(taken)}, and the table that remembers the push has columns of its own named so",
            remedy="Give these fields other names by `map`, and in `key`.",
            stream=str(stream),
        )
    for key in keys:
        kind = fields.field(key).type
        if not any(is_fit(kind) for is_fit in _KEY_TYPES):
            raise ConfigError(
                _DOING,
                f"the key {key} is of type {kind}, by which rows cannot be told apart",
                remedy="Map it to text, a whole number, a decimal, a date or a time.",
                stream=str(stream),
            )
    key_fields = [pa.field(key, fields.field(key).type) for key in keys]
    name = delivered_table_name(connection, stream)
    return TableSpec(
        name,
        pa.schema([*key_fields, *_OWN]),
        tuple(keys),
        comment="What a push has delivered",
        evolution_rules=EvolutionRules(SchemaPolicy.FREEZE),
        merge=MergeMode.ON_READ,
    )


def prepare_delivered_table(context: PushContext, spec: TableSpec, stream: StreamId) -> TableTarget:
    """Creates the table if there never was one, and holds it against what the store remembers of it. If all rows are to
    be sent again, it is created in any case.

    Raises TableError where it remembers rows by another key, and ConfigError where it is the memory of another push.
    """
    _check_is_own(context, spec.name, stream)
    remembers = not context.request.is_full
    # Before it is prepared: one that is not there, and was, is not made anew without a row in it.
    witness = _checked_witness(context, spec, stream) if remembers else None
    try:
        target = context.engine.tables.prepare(spec)
    except SchemaRefused as error:
        raise _other_key(context, spec, stream) from error
    if set(keys_of(target)) != set(spec.keys):
        raise _other_key(context, spec, stream)
    if remembers and (witness is None or witness.table_id != target.table_id):
        _checked_witness(context, spec, stream)
    return target


def _check_is_own(context: PushContext, table: TableName, stream: StreamId) -> None:
    """Raises ConfigError for the memory of another push: stream `b__c` of `a` and stream `c` of `a__b` have one name
    for it. Each would take the rows of the other for delivered."""
    store, connection = context.delivery.store, context.delivery.lease.connection
    for other in store.connections():
        may_meet = other != connection and table.name.startswith(f"{other}__")
        if may_meet and store.protocol(other) == PUSH:
            # A stream whose state a person has reset is not among them.
            for pushed in store.landed_tables(other):
                if delivered_table_name(other, pushed) == table:
                    raise _of_another_push(table, stream, other, pushed)


def _of_another_push(table: TableName, stream: StreamId, other: str, pushed: StreamId) -> ConfigError:
    return ConfigError(
        _DOING,
        f"its table {table} is the memory of stream {pushed} of connection {other}: their names make up the same one",
        remedy="Give one of the two another `name`, and forget its stream under the old one, as by"
        f" `{reset_command(other, pushed)}`: its next push sends all rows. Where both were pushed, send all"
        " rows of the one that keeps its name again too, with `--full`.",
        stream=str(stream),
    )


def _checked_witness(context: PushContext, spec: TableSpec, stream: StreamId) -> Witness | None:
    store, connection = context.delivery.store, context.delivery.lease.connection
    witness = context.engine.tables.witness(spec.name, connection)
    remedy = (
        f"Send all rows again: `{full_command(connection, stream)}`; partitions after"
        f" `{reset_command(connection, stream)}`."
    )
    landed = store.landed_tables(connection).get(stream)
    if landed is not None:
        # A load without a state notes what a plan had sent that was given up: no row comes again for it.
        landed = landed._replace(is_covered=True)
    check_witness(LoadsReadOnce(store), context.delivery.lease, stream, witness, Remembered(landed, remedy=remedy))
    return witness


def keys_of(target: TableTarget) -> tuple[str, ...]:
    return tuple(name for name in target.schema.names if name not in _OWN_NAMES)


def _other_key(context: PushContext, spec: TableSpec, stream: StreamId) -> TableError:
    return TableError(
        f"{_DOING}, table {spec.name}",
        f"it remembers rows by another key, or its key has another type than {', '.join(spec.keys)} has now",
        remedy="Use the key as it was; or drop the table and run"
        f" `{reset_command(context.delivery.connection.name, stream)}`: then all rows are sent again.",
        stream=str(stream),
    )


def was_pushed(context: PushContext, stream: StreamId) -> bool:
    """True if rows of the stream were delivered before, though its state may have been reset since."""
    if stored_position(context, stream) is not None:
        return True
    changes = context.delivery.store.history(context.delivery.connection.name, limit=NO_LIMIT, with_states=False)
    return any(change.stream in (stream, None) for change in changes)


def stored_position(context: PushContext, stream: StreamId) -> PushPosition | None:
    """The position of a stream as the store has it; None if it was never pushed, or was reset."""
    codec = state_codec_named(PUSH)
    for stored in context.delivery.store.states(context.delivery.connection.name, stream=stream):
        if stored.state.stream == stream:
            try:
                return msgspec.convert(codec.value(stored.state), PushPosition)
            except msgspec.ValidationError as error:
                remedy = f"{reset_command(context.delivery.connection.name, stream)} sends all rows again."
                raise ConfigError(
                    "reading the state of the push", f"it is none of a push: {error}", remedy=remedy, stream=str(stream)
                ) from error
    return None
