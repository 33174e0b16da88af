"""Writes the output of a source: records of several streams with their states, and the catalog beside it.

`python -m bench.generate FILE --records 1000000` takes seconds: a line is one `%` over the next value of each pool.
The file holds records and states alone; `replay_source.py` adds the stream statuses around it, so that the
file can be played many times over in one sync. Identifiers then repeat, which an append does not mind.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import cycle, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from bench.shapes import Group, Leaf, Pool, StreamShape, shop, unruly, wide

_EMITTED_AT = 1_763_719_200_000
_EXTRACTED_AT = "2025-11-21T10:00:00Z"


class Dialect(StrEnum):
    COMPACT = "compact"
    SPACED = "spaced"
    SINGER = "singer"


class Recipe(NamedTuple):
    """`run_length` records of a stream come in a row. Each stream has a state after every `state_every` of its records.

    `columns` of 0 means the shop's streams; any other number, streams that wide. `misfits` is the share of records with
    a value that is not of its column's type. With `is_catalog_reversed` the catalog has the columns in the reverse
    order of the records.
    """

    records: int = 1_000_000
    run_length: int = 500
    state_every: int = 10_000
    dialect: Dialect = Dialect.COMPACT
    streams: int = 3
    columns: int = 0
    misfits: float = 0
    is_catalog_reversed: bool = False

    @property
    def name(self) -> str:
        width = f"-{self.columns}columns" if self.columns else ""
        misfits = f"-{self.misfits:g}misfits" if self.misfits else ""
        order = "-reversed" if self.is_catalog_reversed else ""
        size = f"{self.records}-{self.streams}streams{width}{misfits}{order}"
        return f"{size}-runs{self.run_length}-state{self.state_every}-{self.dialect}"


class Generated(NamedTuple):
    """The counts of what was written."""

    path: Path
    records: dict[str, int]
    states: int
    size_bytes: int

    @property
    def catalog_path(self) -> Path:
        return self.path.with_suffix(".catalog.json")

    @property
    def total_records(self) -> int:
        return sum(self.records.values())


def generate(recipe: Recipe, path: Path) -> Generated:
    """Writes the file, its catalog and its counts. An existing file that has its counts is used again."""
    counts = path.with_suffix(".counts.json")
    if counts.exists() and path.exists():
        return Generated(path, **json.loads(counts.read_text()))
    shapes = wide(recipe.streams, recipe.columns) if recipe.columns else shop(recipe.streams)
    if recipe.misfits:
        shapes = [unruly(shape, recipe.misfits) for shape in shapes]
    with path.open("wb") as file:
        tape = _Tape(recipe, shapes, file)
        tape.write()
        written = Generated(path, tape.written, tape.states, file.tell())
    told = [shape._replace(columns=shape.columns[::-1]) for shape in shapes] if recipe.is_catalog_reversed else shapes
    written.catalog_path.write_text(json.dumps(catalog_message(told)) + "\n")
    counts.write_text(json.dumps({key: value for key, value in written._asdict().items() if key != "path"}))
    return written


def catalog_message(shapes: Sequence[StreamShape]) -> dict[str, Any]:
    """The CATALOG message that `discover` prints."""
    streams = [
        {
            "name": shape.name,
            "json_schema": shape.json_schema,
            "supported_sync_modes": ["full_refresh", "incremental"],
            "source_defined_cursor": True,
            "default_cursor_field": ["id"],
            "source_defined_primary_key": [["id"]],
        }
        for shape in shapes
    ]
    return {"type": "CATALOG", "catalog": {"streams": streams}}


class _Tape:
    """One file that is being written: the position of each stream, and its records since the last state."""

    def __init__(self, recipe: Recipe, shapes: Sequence[StreamShape], file: IO[bytes]) -> None:
        self._recipe = recipe
        self._file = file
        self._shapes = shapes
        self._lines = {shape.name: _lines(shape, recipe.dialect) for shape in shapes}
        self._owed = {shape.name: 0 for shape in shapes}
        self.written = {shape.name: 0 for shape in shapes}
        self.states = 0

    def write(self) -> None:
        if self._recipe.dialect is Dialect.SINGER:
            for shape in self._shapes:
                self._message({"type": "SCHEMA", "stream": shape.name, "schema": shape.json_schema,
                               "key_properties": ["id"], "bookmark_properties": ["id"]})  # fmt: skip
        each, over = divmod(self._recipe.records, len(self._shapes))
        wanted = {shape.name: each + (i < over) for i, shape in enumerate(self._shapes)}
        while any(self.written[name] < wanted[name] for name in wanted):
            for name, total in wanted.items():
                self._run(name, min(self._recipe.run_length, total - self.written[name]))
        for name, owed in self._owed.items():
            if owed:
                self._state(name)

    def _run(self, name: str, length: int) -> None:
        while length:
            piece = min(length, self._recipe.state_every - self._owed[name])
            self._file.write("".join(islice(self._lines[name], piece)).encode())
            length -= piece
            self.written[name] += piece
            self._owed[name] += piece
            if self._owed[name] == self._recipe.state_every:
                self._state(name)

    def _state(self, name: str) -> None:
        owed, self._owed[name] = self._owed[name], 0
        self.states += 1
        if self._recipe.dialect is Dialect.SINGER:
            bookmarks = {stream: {"replication_key_value": count} for stream, count in self.written.items() if count}
            return self._message({"type": "STATE", "value": {"bookmarks": bookmarks}})
        stream = {"stream_descriptor": {"name": name}, "stream_state": {"id": self.written[name]}}
        state = {"type": "STREAM", "stream": stream, "sourceStats": {"recordCount": float(owed)}}
        return self._message({"type": "STATE", "state": state})

    def _message(self, message: dict[str, Any]) -> None:
        self._file.write(json.dumps(message, separators=_separators(self._recipe.dialect)).encode() + b"\n")


def _separators(dialect: Dialect) -> tuple[str, str]:
    return (", ", ": ") if dialect is Dialect.SPACED else (",", ":")


def _lines(shape: StreamShape, dialect: Dialect) -> Iterator[str]:
    """An endless iterator of the stream's record lines. No Python code runs for a line: `zip` and `%` do it all."""
    comma, colon = _separators(dialect)
    data = _template(shape.columns, comma, colon)
    marks: dict[str, Any] = {"stream": shape.name, "data": "@", "emitted_at": _EMITTED_AT}
    envelope: dict[str, Any] = {"type": "RECORD", "record": marks}
    if dialect is Dialect.SINGER:
        envelope = {"type": "RECORD", "stream": shape.name, "record": "@", "time_extracted": _EXTRACTED_AT}
    line = json.dumps(envelope, separators=(comma, colon)).replace('"@"', data) + "\n"
    pools = [_rendered(pool, comma, colon) for leaf in _leaves(shape.columns) for pool in leaf.pools]
    fill: Callable[[object], str] = line.__mod__
    return map(fill, zip(*pools, strict=False))


def _template(columns: Sequence[Leaf | Group], comma: str, colon: str) -> str:
    pieces = (
        f'"{column.name}"{colon}'
        + (column.template if isinstance(column, Leaf) else _template(column.columns, comma, colon))
        for column in columns
    )
    return "{" + comma.join(pieces) + "}"


def _leaves(columns: Sequence[Leaf | Group]) -> Iterator[Leaf]:
    for column in columns:
        yield from (column,) if isinstance(column, Leaf) else column.columns


def _rendered(pool: Pool, comma: str, colon: str) -> Iterator[object]:
    """A range is walked once (`cycle` would remember it all); lists inside a pool are written in the dialect."""
    if isinstance(pool, range):
        return iter(pool)
    return cycle(
        json.dumps(value, separators=(comma, colon), ensure_ascii=False) if isinstance(value, list) else value
        for value in pool
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.generate", description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    for option, default in Recipe()._asdict().items():
        name = f"--{option.replace('_', '-')}"
        if isinstance(default, bool):
            parser.add_argument(name, action="store_true")
        else:
            parser.add_argument(name, type=type(default), default=default)
    arguments = vars(parser.parse_args())
    written = generate(Recipe(**{field: arguments[field] for field in Recipe._fields}), arguments["file"])
    average = written.size_bytes / max(1, written.total_records)
    print(f"{written.total_records} records, {written.states} states, {average:.0f} bytes a record", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
