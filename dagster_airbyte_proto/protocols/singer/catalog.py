"""Singer's catalogs: the catalog that `--discover` returns, and the same catalog with the selection written into it.

1. The id of a stream is its `tap_stream_id`: it is unique, and bookmarks and selections use it too. Records may call
   the stream by its `stream` member, or by an alias from the config (`stream_aliases`).
2. Where the given catalog says nothing, a tap syncs what its own catalog selects by default. So the whole catalog goes
   back: each entry as it came, except for the members that hold the selection.
3. The inclusion of a property is respected: `automatic` ones are always sent, `unsupported` ones never, so these become
   no columns. A property that is not selected by default is selected if the user named it.
4. Unless a method is forced, a stream may be read by FULL_TABLE, or by a replication key: one of those the tap names,
   or any that the user names if the tap names none (databases). A table that is read incrementally without a key is
   LOG_BASED: INCREMENTAL needs a key, and no catalog of a tap says that LOG_BASED is possible.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from dagster_airbyte_proto.json_references import names_in
from dagster_airbyte_proto.model import Catalog, PlannedStream, ReadMode, Stream, StreamId
from dagster_airbyte_proto.protocols.catalog_json import UnreadableSchema, catalog_message, parse_streams
from dagster_airbyte_proto.protocols.conversation import ReadRequest
from dagster_airbyte_proto.protocols.raw_json import members, value, with_member

_FULL_TABLE, _INCREMENTAL, _LOG_BASED = "FULL_TABLE", "INCREMENTAL", "LOG_BASED"
_DATABASE_METADATA = frozenset(("schema-name", "database-name"))
_Breadcrumb = tuple[str, ...]


def parse_catalog(message: bytes) -> Catalog:
    """Parses the catalog that a tap printed. Raises ProtocolViolation."""
    return parse_streams((members(message) or {}).get("streams", b"null"), _parse_stream, name_member="tap_stream_id")


def selected_catalog(request: ReadRequest, *, marks_schemas: bool) -> bytes:
    """The catalog for a read, with the selection in it. Old taps (`marks_schemas`) look for it in the schemas too."""
    planned = {each.id: each for each in request.streams}
    offered = {stream.id: stream for stream in request.available} | {each.id: each.stream for each in request.streams}
    return catalog_message(
        _catalog_entry(stream, planned.get(stream.id), request.fields.get(stream.id), marks_schemas=marks_schemas)
        for stream in offered.values()
    )


def stream_aliases(request: ReadRequest) -> dict[StreamId, tuple[StreamId, ...]]:
    """The other names that records may use, each with its streams: two tables of two schemas may share one name."""
    found: dict[str, list[StreamId]] = {}
    own = {stream.id.name for stream in (*request.available, *(each.stream for each in request.streams))}
    maps = request.config.get("stream_maps")
    for each in request.streams:
        entry = value(each.stream.raw)
        mapped = maps.get(each.id.name) if isinstance(maps, Mapping) else None
        alias = mapped.get("__alias__") if isinstance(mapped, Mapping) else None
        for name in {entry.get("stream"), entry.get("stream_alias"), alias} - {None, each.id.name}:
            if isinstance(name, str) and (name == alias or name not in own):
                found.setdefault(name, []).append(each.id)
    return {StreamId.of(name): tuple(streams) for name, streams in found.items()}


def follows_the_log(planned: PlannedStream) -> bool:
    """True if the stream is read from the source's log, which all such streams share."""
    if planned.read is not ReadMode.INCREMENTAL:
        return False
    entry = value(planned.stream.raw)
    is_offered_so = _replication_method(entry, _metadata(entry).get((), {})) == _LOG_BASED
    return is_offered_so or (planned.stream.supports_log_replication and not planned.cursor)


def _parse_stream(entry: Mapping[str, Any], raw: bytes) -> Stream | None:
    name = entry.get("tap_stream_id") or entry.get("stream")
    if not isinstance(name, str):
        return None
    stream, metadata = StreamId.of(name), _metadata(entry)
    root = metadata.get((), {})
    schema = entry.get("schema") or {}
    if not isinstance(schema, dict):
        raise UnreadableSchema
    method, forced = _replication_method(entry, root), root.get("forced-replication-method")
    valid = names_in(root.get("valid-replication-keys"))
    key = _first_text(entry.get("replication_key"), root.get("replication-key"), *(valid if len(valid) == 1 else ()))
    # Changes from a log arrive in the order of the log. A column, which the source may update, would give another
    # order.
    cursor = (key,) if key is not None and method not in (_FULL_TABLE, _LOG_BASED) else ()
    is_only_one = len(valid) == 1 or forced == _INCREMENTAL
    unsupported = _unsupported(metadata)
    return Stream(
        id=stream,
        json_schema=_schema_without(schema, unsupported),
        read_modes=(ReadMode.FULL_REFRESH,) if forced == _FULL_TABLE else tuple(ReadMode),
        primary_key=tuple((name,) for name in _key_properties(entry, root)),
        cursor=cursor,
        is_cursor_fixed=method == _LOG_BASED or (bool(cursor) and is_only_one),
        supports_log_replication=method is None and not valid and not _DATABASE_METADATA.isdisjoint(root),
        unsupported_fields=unsupported,
        raw=raw,
    )


def _catalog_entry(
    stream: Stream, planned: PlannedStream | None, fields: frozenset[str] | None, *, marks_schemas: bool
) -> bytes:
    entry = value(stream.raw)
    metadata = _metadata(entry)
    root = {**metadata.pop((), {}), "selected": planned is not None}
    raw, method, chosen = stream.raw, None, _selected_fields(stream, planned, fields)
    if planned is not None:
        is_log = follows_the_log(planned)
        method = _FULL_TABLE if planned.read is ReadMode.FULL_REFRESH else _LOG_BASED if is_log else _INCREMENTAL
        root["replication-method"] = method
        raw = with_member(raw, "replication_method", msgspec.json.encode(method))
        if planned.cursor and method == _INCREMENTAL:
            root["replication-key"] = planned.cursor[0]
            raw = with_member(raw, "replication_key", msgspec.json.encode(planned.cursor[0]))
    written: list[Any] = [{"breadcrumb": [], "metadata": root}]
    schema = entry.get("schema")
    schema = schema if isinstance(schema, dict) else {}
    for name in schema.get("properties") or {}:
        metadata.setdefault(("properties", name), {})
    needed: frozenset[str] = frozenset() if planned is None else _needed_fields(planned)
    for breadcrumb, about in metadata.items():
        if planned is not None and len(breadcrumb) == 2:
            by_name = fields is not None or breadcrumb[1] in needed
            about = {**about, "selected": _is_selected(breadcrumb[1], about, chosen, by_name=by_name)}
        written.append({"breadcrumb": list(breadcrumb), "metadata": about})
    if marks_schemas:
        raw = with_member(raw, "schema", msgspec.json.encode(_schema_with_selection(schema, written)))
    return with_member(raw, "metadata", msgspec.json.encode(written))


def _selected_fields(stream: Stream, planned: PlannedStream | None, fields: frozenset[str] | None) -> frozenset[str]:
    """The properties to read. Keys and cursors are always among them."""
    if planned is None:
        return frozenset()
    declared = stream.json_schema.get("properties")
    return _needed_fields(planned) | (fields if fields is not None else frozenset(declared or ()))


def _needed_fields(planned: PlannedStream) -> frozenset[str]:
    """The properties of the key and the cursor."""
    return frozenset(path[0] for path in (*planned.primary_key, planned.cursor) if path)


def _is_selected(name: str, about: Mapping[str, Any], chosen: frozenset[str], *, by_name: bool) -> bool:
    inclusion = about.get("inclusion")
    if inclusion in ("automatic", "unsupported"):
        return bool(inclusion == "automatic")
    return name in chosen and (by_name or about.get("selected-by-default") is not False)


def _schema_with_selection(schema: Mapping[str, Any], written: list[Any]) -> Mapping[str, Any]:
    """The schema with the selection in it, where taps that take `--properties` look for it."""
    selected = {tuple(each["breadcrumb"]): each["metadata"].get("selected", False) for each in written}
    properties = {
        name: {**rule, "selected": selected.get(("properties", name), False)} if isinstance(rule, dict) else rule
        for name, rule in (schema.get("properties") or {}).items()
    }
    return {**schema, "selected": selected[()], "properties": properties}


def _metadata(entry: Mapping[str, Any]) -> dict[_Breadcrumb, dict[str, Any]]:
    found: dict[_Breadcrumb, dict[str, Any]] = {}
    written = entry.get("metadata")
    for each in written if isinstance(written, list) else ():
        if isinstance(each, dict) and isinstance(each.get("metadata"), dict):
            found[names_in(each.get("breadcrumb"))] = each["metadata"]
    return found


def _replication_method(entry: Mapping[str, Any], root: Mapping[str, Any]) -> str | None:
    written = (root.get("forced-replication-method"), root.get("replication-method"), entry.get("replication_method"))
    return _first_text(*written)


def _key_properties(entry: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[str, ...]:
    written = (entry.get("key_properties"), root.get("table-key-properties"), root.get("view-key-properties"))
    return next(filter(None, map(names_in, written)), ())


def _first_text(*written: Any) -> str | None:
    return next((each for each in written if isinstance(each, str) and each), None)


def _unsupported(metadata: Mapping[_Breadcrumb, Mapping[str, Any]]) -> tuple[str, ...]:
    own = {at[1]: about for at, about in metadata.items() if len(at) == 2 and at[0] == "properties"}
    return tuple(name for name, about in own.items() if about.get("inclusion") == "unsupported")


def _schema_without(schema: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    return {**schema, "properties": {name: rule for name, rule in properties.items() if name not in names}}
