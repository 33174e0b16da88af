"""Rows of many streams, in a file until they are printed: a list of any length needs the memory of a page.

They are read to the last one before the first is printed, so that an error on the way is the only answer.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

from dagster_airbyte_proto.cli.output import Grid, json_text
from dagster_airbyte_proto.errors import StagingError
from dagster_airbyte_proto.plurals import counted

PAGE_ROWS = 1000
_PAGE_BYTES = 1 << 20

Row = Mapping[str, Any]


class _Section(NamedTuple):
    """The rows of a stream: where they begin in the file, their number, and those of `shown_if_not` that are shown."""

    begin: int
    rows: int
    others: Collection[str]


class ListedRows:
    """The rows of each stream, in their order. The file has no name, and goes once the rows are printed.

    For people a row has the columns of `shown`. A column of `shown_if_not` is among them if a row of its stream has
    another value there than the one that is given here.
    """

    def __init__(self, folder: Path, shown: Collection[str], shown_if_not: Mapping[str, Any]) -> None:
        self._folder, self._shown, self._shown_if_not = folder, shown, shown_if_not
        self._sections: dict[str, _Section] = {}
        with _staging_errors(folder):
            self._file = TemporaryFile("w+b", dir=folder)  # noqa: SIM115 - it is read after this call

    def add(self, stream: str, rows: Iterable[Row]) -> None:
        """Reads the rows of a stream. Raises StagingError where there is no room for them."""
        begin, count = self._file.tell(), 0
        others: set[str] = set()
        for row in rows:
            others |= {name for name, silent in self._shown_if_not.items() if row.get(name, silent) != silent}
            with _staging_errors(self._folder):
                self._file.write(json_text(row).encode() + b"\n")
            count += 1
        with _staging_errors(self._folder):
            self._file.flush()
        self._sections[stream] = _Section(begin, count, others)

    def as_json(self, connection: str, name: str) -> Iterator[str]:
        """The document, in pieces: the lists of rows, by stream, under a name."""
        yield f'{{"connection": {json_text(connection)}, {json_text(name)}: {{'
        for number, (stream, section) in enumerate(self._sections.items()):
            yield f"{', ' if number else ''}{json_text(stream)}: ["
            for place, line in enumerate(self._lines(section)):
                yield f"{',' if place else ''}\n{line.decode().rstrip()}"
            yield "]"
        yield "}}\n"
        self._file.close()

    def as_parts(self, verb: str, *, if_empty: str) -> Iterator[str | Grid]:
        """The text for people: a table for each page."""
        if not self._sections:
            yield if_empty
        for stream, section in self._sections.items():
            yield f"{stream}: {counted(section.rows, 'row')} {verb}"
            shown = [each for each in self._shown if each not in self._shown_if_not or each in section.others]
            for page in _pages(self._lines(section)):
                yield Grid(shown, [[row.get(name) for name in shown] for row in page])
        self._file.close()

    def _lines(self, section: _Section) -> Iterator[bytes]:
        self._file.seek(section.begin)
        return islice(iter(self._file.readline, b""), section.rows)


@contextmanager
def _staging_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = "Make room there, or make it writable."
        raise StagingError("listing rows", f"{folder}: {error.strerror or error}", remedy=remedy) from error


def _pages(lines: Iterable[bytes]) -> Iterator[list[Row]]:
    page: list[Row] = []
    size_bytes = 0
    for line in lines:
        if len(page) == PAGE_ROWS or (page and size_bytes + len(line) > _PAGE_BYTES):
            yield page
            page, size_bytes = [], 0
        page.append(json.loads(line))
        size_bytes += len(line)
    if page:
        yield page
