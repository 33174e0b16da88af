"""Compares two catalogs of a connector: for a person who reads what changed, and for the order of the saved one.

Only what matters to tables is compared: streams, columns and their types, keys, cursors and read modes. Titles, the
order of columns and whether null is allowed do not matter.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.json_references import properties_in
from dagster_airbyte_proto.model import Catalog, Stream, StreamId
from dagster_airbyte_proto.protocols.conversation import SourceProtocol
from dagster_airbyte_proto.schema.names import case_folded
from dagster_airbyte_proto.schema.stream_profile import paths_text
from dagster_airbyte_proto.sync.connector.answer_cache import AnswerCache

UNSAFE_IN_KEYS = re.compile(r"[^A-Za-z0-9_.-]+")
"""Dagster makes the name of an output from an asset's key, and allows only other characters there."""


class SavedBefore(NamedTuple):
    """The catalog that was saved before, without streams if there was none. One that cannot be read gives a `warning`:
    to save anew is the way out."""

    catalog: Catalog
    warning: str = ""


def saved_before(cache: AnswerCache, protocol: SourceProtocol, connection: str) -> SavedBefore:
    """Returns the catalog that was saved before for a connection."""
    answer = cache.saved_catalog(connection)
    try:
        catalog = protocol.catalog(answer.message) if answer.message else Catalog(())
    except ConnectorError as error:
        return SavedBefore(Catalog(()), f"the catalog that was saved before cannot be used: {error.found}")
    return SavedBefore(catalog, answer.warning)


def catalog_changes(old: Catalog, new: Catalog) -> list[str]:
    """Returns one line for each difference, in the order of the streams' names."""
    before = {stream.id: stream for stream in old.streams}
    after = {stream.id: stream for stream in new.streams}
    lines: list[str] = []
    for stream in sorted(before | after, key=str):
        if stream not in before:
            lines.append(f"{stream}: new stream ({len(properties_in(after[stream].json_schema))} columns)")
        elif stream not in after:
            lines.append(f"{stream}: the stream is gone")
        else:
            lines.extend(f"{stream}: {change}" for change in _stream_changes(before[stream], after[stream]))
    return lines


def in_former_order(found: Catalog, *former: Catalog) -> Catalog:
    """Returns the catalog with its streams in the order in which they first came: those of the `former` catalogs, then
    new ones.

    Of two streams with like names the first has the plain asset key, so a new one must not come before it. Of two new
    ones the first is the one whose name is a key as it is, whatever the connector's order.
    """
    known = dict.fromkeys(stream.id for catalog in former for stream in catalog.streams)
    places = {stream: place for place, stream in enumerate(known)}
    likes: dict[str, int] = {}
    for place, stream in enumerate(found.streams):
        likes.setdefault(_plain_key(stream.id), place)

    def order(stream: Stream) -> tuple[int, int, bool, str]:
        is_key = not any(UNSAFE_IN_KEYS.search(part) for part in stream.id if part)
        return places.get(stream.id, len(places)), likes[_plain_key(stream.id)], not is_key, str(stream.id)

    return msgspec.structs.replace(found, streams=tuple(sorted(found.streams, key=order)))


def _plain_key(stream: StreamId) -> str:
    """A text that is equal for streams that would have the same plain asset key, but for case."""
    return case_folded("__".join(re.sub("[-.]", "_", UNSAFE_IN_KEYS.sub("_", part)) for part in stream if part))


def _stream_changes(old: Stream, new: Stream) -> Iterator[str]:
    yield from _column_changes(dict(_columns_with_fields(old.json_schema)), dict(_columns_with_fields(new.json_schema)))
    if set(old.primary_key) != set(new.primary_key):
        yield f"primary key was {paths_text(old.primary_key)}, is {paths_text(new.primary_key)}"
    if old.cursor != new.cursor:
        yield f"cursor was {paths_text((old.cursor,))}, is {paths_text((new.cursor,))}"
    yield from (f"{mode.value} reads are new" for mode in sorted(set(new.read_modes) - set(old.read_modes)))
    yield from (f"{mode.value} reads are gone" for mode in sorted(set(old.read_modes) - set(new.read_modes)))


def _column_changes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for column in dict.fromkeys((*before, *after)):
        if column not in before:
            yield f"column {column} is new ({after[column]})"
        elif column not in after:
            yield f"column {column} is gone"
        elif before[column] != after[column]:
            yield f"column {column} was {before[column]}, is {after[column]}"


def _columns_with_fields(schema: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Each column with its type in words. The fields of an object follow the object, under their dotted paths."""
    for name, rule in properties_in(schema).items():
        yield prefix + name, _type_text(rule)
        yield from _columns_with_fields(rule, f"{prefix}{name}.")


def _type_text(rule: Any) -> str:
    """A type in words, such as `string (date-time)`. Whether null is allowed does not matter to a table."""
    if not isinstance(rule, Mapping):
        return "anything"
    written = rule.get("type", [])
    names = sorted({written} if isinstance(written, str) else {str(name) for name in _listed(written)})
    unions = [each for key in ("oneOf", "anyOf") for each in _listed(rule.get(key))]
    words = [name for name in names if name != "null"] + [_type_text(each) for each in unions]
    if names == ["array"] or names == ["array", "null"]:
        words = [f"array of {_type_text(rule['items'])}" if isinstance(rule.get("items"), Mapping) else "array"]
    notes = [str(rule[key]) for key in ("format", "airbyte_type") if key in rule]
    return " or ".join(dict.fromkeys(words) or ["anything"]) + (f" ({', '.join(notes)})" if notes else "")


def _listed(given: Any) -> list[Any]:
    """The list that belongs here by JSON Schema; empty for anything else that a connector sends."""
    return given if isinstance(given, list) else []
