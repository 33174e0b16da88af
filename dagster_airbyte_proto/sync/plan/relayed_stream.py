"""Plans a stream of a relay: its rows are staged as they come, and the destination does what the write mode says."""

import hashlib
import hmac

import msgspec

from dagster_airbyte_proto.connection import Connection, StreamOptions
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import (
    DEDUPLICATING,
    REPLACING,
    PlannedStream,
    PushMode,
    ReadMode,
    RelayTarget,
    StreamId,
    TypeChoices,
    WriteMode,
)
from dagster_airbyte_proto.transforms.transform_choice import described_connectors, described_transforms

_OF_TABLES = ("partition_by", "sort_by", "cluster", "merge", "formerly", "types", "schema_policy")
_DEFAULTS = StreamOptions()


def relayed_stream(connection: Connection, planned: PlannedStream, options: StreamOptions) -> PlannedStream:
    """Returns the stream as a relay stages it. Raises ConfigError for what only a table can do."""
    doing, stream = f"planning the sync of connection {connection.name}", str(planned.id)
    if stray := [name for name in _OF_TABLES if getattr(options, name) != getattr(_DEFAULTS, name)]:
        found = f"{', '.join(stray)}: only for tables, and this one has a destination"
        raise ConfigError(doing, found, remedy="Leave that out of the stream's options.", stream=stream)
    if options.write is WriteMode.SOFT_DELETE:
        remedy = "Use write: append_dedup. What happens to a deleted row is up to the destination."
        raise ConfigError(doing, "write: soft_delete is only for tables", remedy=remedy, stream=stream)
    if planned.slice is not None and planned.write is not WriteMode.OVERWRITE_DEDUP:
        found = f"it is read for partition {planned.slice}, and a destination has no partitions that could be replaced"
        remedy = "Use write: append_dedup with a primary_key: then a record that is sent again is there once."
        raise ConfigError(doing, found, remedy=remedy, stream=stream)
    if planned.slice is not None:
        mode = PushMode.UPSERT
    elif planned.write in REPLACING:
        mode = PushMode.OVERWRITE
    else:
        mode = PushMode.UPSERT if planned.write in DEDUPLICATING else PushMode.APPEND
    nested = [path for path in planned.primary_key if len(path) > 1]
    if nested and mode is PushMode.UPSERT:
        found = f"its key {'.'.join(nested[0])} lies within an object, and destinations take fields of the record only"
        raise ConfigError(doing, found, remedy="Use write: append, or another primary_key.", stream=stream)
    keys = () if nested else tuple(path[0] for path in planned.primary_key)
    connectors = described_connectors(connection, planned.transforms)
    return msgspec.structs.replace(
        planned,
        write=WriteMode.OVERWRITE if mode is PushMode.OVERWRITE else WriteMode.APPEND,
        keeps_deleted=False,
        slice=None,
        types=TypeChoices(),
        sdc_columns=False,
        relay=RelayTarget(
            _target_stream(connection, planned, options),
            mode,
            keys,
            _has_arrow(connection),
            _cursor(planned),
            _fingerprint(planned, mode, keys, planned.slice, connectors),
            connectors,
        ),
    )


def with_hash_key(planned: PlannedStream, hash_key: str) -> PlannedStream:
    """Returns a stream that hashes columns with the key among what its fingerprint is of, by an HMAC."""
    if planned.relay is None:
        return planned
    keyed = _keyed(planned.relay.fingerprint, hash_key)
    return msgspec.structs.replace(planned, relay=msgspec.structs.replace(planned.relay, fingerprint=keyed))


def fingerprints_by_mode(planned: PlannedStream, hash_key: str, partition: str | None = None) -> frozenset[str]:
    """Returns the fingerprints of this stream in each mode, of a partition or without one: a refresh, or a run of a
    partition, has another mode, and shapes its records alike. `hash_key` is empty where it hashes no column."""
    if planned.relay is None:
        return frozenset()
    known = (planned.relay.connectors, "")  # Loads of earlier releases say nothing of connectors.
    found = (_fingerprint(planned, mode, planned.relay.keys, partition, each) for mode in PushMode for each in known)
    return frozenset(_keyed(each, hash_key) if hash_key else each for each in found)


def fingerprints_of(planned: PlannedStream, hash_key: str) -> frozenset[str]:
    """Returns the fingerprint of this stream without a partition, and that which earlier releases gave it: it says
    nothing of connectors. `hash_key` is empty where it hashes no column."""
    if planned.relay is None:
        return frozenset(("",))
    former = _fingerprint(planned, planned.relay.mode, planned.relay.keys, None)
    return frozenset((planned.relay.fingerprint, _keyed(former, hash_key) if hash_key else former))


def _keyed(fingerprint: str, hash_key: str) -> str:
    return hmac.new(hash_key.encode(), fingerprint.encode(), hashlib.sha256).hexdigest()[:16]


def _fingerprint(
    planned: PlannedStream, mode: PushMode, keys: tuple[str, ...], partition: str | None, connectors: str = ""
) -> str:
    """A digest of all by which a record that was rejected may differ from one that is sent today: a column that is
    hashed by now must not go in clear because it was rejected before."""
    values = [mode, keys, partition, planned.shaping, described_transforms(planned.transforms)]
    values += [connectors] if connectors else []
    return hashlib.sha256(msgspec.json.encode(values, order="deterministic")).hexdigest()[:16]


def _cursor(planned: PlannedStream) -> str | None:
    """The field by which the source finds new records, if it is one of the record that is sent as it is."""
    is_hashed = planned.shaping is not None and planned.cursor in planned.shaping.hashed
    if planned.read is not ReadMode.INCREMENTAL or len(planned.cursor) != 1 or is_hashed:
        return None
    return planned.cursor[0]


def _has_arrow(connection: Connection) -> bool:
    ends = (connection.connector, connection.to.connector if connection.to is not None else None)
    return any(each is not None and each.protocol == "rapidbyte" for each in ends)


def _target_stream(connection: Connection, planned: PlannedStream, options: StreamOptions) -> StreamId:
    """The stream's name at the destination. Singer has no namespaces: there they are part of the name."""
    name, namespace = options.rename or planned.id.name, planned.id.namespace
    if connection.to is not None and connection.to.connector.protocol == "singer" and namespace:
        return StreamId(None, f"{namespace}-{name}")
    return StreamId(namespace, name)
