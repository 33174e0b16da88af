"""The answer of a command, and how it is printed: tables for people, or one JSON document.

A table that is wider than the terminal is printed as records, one line a value, as psql's `\\x` does: cells that are
cut or broken anywhere cannot be read or copied. Files and pipes have no width, so they always get the table.

rich is imported only where something is drawn, so that `--json` and `--help` do not wait for it.
"""

import base64
import json
import math
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO
from uuid import uuid4

from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.protocols.raw_json import number_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_FILE_COLUMNS = 100_000_000
# rich draws one space at each edge and two between two columns.
_EDGES, _GAP = 2, 2
_RECORD_GAP = len(" | ")
_MIN_TEXT_COLUMNS = 16
_MAX_TEXT_LINES = 6
_MARK = re.compile('"([0-9a-f]{32})"')


class Grid(NamedTuple):
    """A table for people. A column with only numbers, and empty cells, is aligned to the right.

    The numbers of the columns in `counts` get thousands separators; an id or a year must not. The columns in `texts`
    may be wrapped to make the table fit, between words or names.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    counts: Collection[str] = ()
    texts: Collection[str] = ()


class Pieces(NamedTuple):
    """A JSON document in pieces of text: it need not fit into memory."""

    texts: Iterable[str]


class Answer(NamedTuple):
    """The answer of a command. `value` is the JSON document or Pieces of it, None if there is none; `parts` is the text
    for people. Only what is printed is gone through."""

    value: Any
    parts: Iterable[str | Grid]
    exit_code: int = 0


def show(answer: Answer, stdout: TextIO, *, as_json: bool) -> None:
    if as_json and isinstance(answer.value, Pieces):
        stdout.writelines(answer.value.texts)
    elif as_json and answer.value is not None:
        stdout.write(json_text(answer.value, pretty=stdout.isatty()) + "\n")
    elif answer.parts:
        _draw(answer.parts, stdout)
    stdout.flush()


def json_text(value: Any, *, pretty: bool = False, ascii_only: bool = True) -> str:
    """A JSON document, by default in ASCII, which every terminal and pipe can show. Values that JSON lacks (NaN) become
    null. Numbers of `exact_value` keep their digits: `json` knows floats alone, so they are put in afterwards."""
    numbers: dict[str, str] = {}

    def marked(number: Any) -> str:
        mark = uuid4().hex
        numbers[mark] = number_text(number)
        return mark

    form: Mapping[str, Any] = {"indent": 2 if pretty else None, "ensure_ascii": ascii_only, "default": marked}
    try:
        text = json.dumps(value, allow_nan=False, **form)
    except ValueError:
        text = json.dumps(_finite(value), allow_nan=False, **form)
    return _MARK.sub(lambda found: numbers.get(found[1], found[0]), text) if numbers else text


def error_value(error: ProtoError) -> dict[str, Any]:
    return {
        "kind": type(error).__name__,
        "message": str(error),
        "doing": error.doing,
        "found": error.found,
        "remedy": error.remedy,
        "stream": error.stream,
        "retryable": error.retryable,
    }


def plain(text: str, *, max_characters: int = 2000) -> str:
    """Makes foreign text safe for a terminal: without control characters, and limited in length."""
    shown = text if len(text) <= max_characters else text[:max_characters] + "…"
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else "\N{REPLACEMENT CHARACTER}" for letter in shown
    )


def short(value: Any, max_characters: int = 60) -> str:
    """A JSON value as one line of a table; empty for None."""
    if value is None:
        return ""
    text = plain(value if isinstance(value, str) else json_text(value, ascii_only=False))
    return text if len(text) <= max_characters else text[: max_characters - 1] + "…"


def value_text(value: Any) -> str:
    """A value of a row as a cell: nothing for NULL, JSON for nested values, base64 for bytes, and text as it is."""
    if value is None:
        return ""
    if isinstance(value, bool | list | tuple | dict):
        return json.dumps(value, ensure_ascii=False, default=_scalar_text)
    return _scalar_text(value)


def _scalar_text(value: Any) -> str:
    """A value that JSON has no form for. Bytes are as destinations get them, and as `--json` has them."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def time_text(at: datetime | None) -> str:
    """A time in a table, to the second; empty for None."""
    return "" if at is None else at.isoformat(sep=" ", timespec="seconds")


def draw(parts: Sequence[str | Grid], console: "Console") -> None:
    """Prints the text for people, in the width of the console."""
    for part in parts:
        if isinstance(part, str):
            console.print(plain(part, max_characters=100_000), markup=False, soft_wrap=True)
            continue
        cells = [
            [_cell(value, is_count=name in part.counts) for name, value in _named_cells(part, row)] for row in part.rows
        ]
        widths = _fitting_widths(part, cells, console.width)
        if widths is not None:
            console.print(_table(part, cells, widths))
        else:
            lines = _record_lines(part.columns, cells, console.width)
            console.print("\n".join(["", *lines, ""]), markup=False, soft_wrap=True)


def _draw(parts: Iterable[str | Grid], stdout: TextIO) -> None:
    from rich.console import Console

    console = Console(file=stdout, width=None if stdout.isatty() else _FILE_COLUMNS, highlight=False, emoji=False)
    for part in parts:
        # Captured and written by us: rich itself would exit with 1 if the reader has closed the pipe.
        with console.capture() as drawn:
            draw([part], console)
        stdout.write(drawn.get())


def _named_cells(grid: Grid, row: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    return zip(grid.columns, row, strict=True)


def _fitting_widths(grid: Grid, cells: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """The width of each column in a table that fits; None if there is no such table that reads well."""
    natural = [max(map(_text_width, column)) for column in zip(map(plain, grid.columns), *cells, strict=True)]
    free = width - _EDGES - _GAP * (len(natural) - 1) - sum(natural)
    if free >= 0:
        return natural
    texts = [number for number, name in enumerate(grid.columns) if name in grid.texts]
    free += sum(natural[number] for number in texts)
    widths = list(natural)
    # The narrow ones first: the wide ones share the space that those leave.
    for left, number in zip(range(len(texts), 0, -1), sorted(texts, key=lambda number: natural[number]), strict=True):
        widths[number] = min(natural[number], free // left)
        free -= widths[number]
        if widths[number] < min(natural[number], max(_MIN_TEXT_COLUMNS, natural[number] // _MAX_TEXT_LINES)):
            return None
    return widths if free >= 0 else None


def _table(grid: Grid, cells: Sequence[Sequence[str]], widths: Sequence[int]) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for number, name in enumerate(grid.columns):
        values = [row[number] for row in grid.rows if row[number] not in (None, "")]
        table.add_column(
            Text("\n".join(_lines_of_cell(plain(name), widths[number]))),
            justify="right" if values and all(isinstance(each, int | float) for each in values) else "left",
            width=widths[number],
            no_wrap=True,
        )
    for row in cells:
        table.add_row(*(Text("\n".join(_lines_of_cell(cell, width))) for cell, width in zip(row, widths, strict=True)))
    return table


def _record_lines(columns: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """The rows as records: a line for each value, and more lines for a long one."""
    from rich.cells import cell_len, set_cell_size

    names = [plain(name) for name in columns]
    label = max(map(cell_len, names))
    room = max(width - label - _RECORD_GAP, _MIN_TEXT_COLUMNS)
    rule = min(width, label + _RECORD_GAP + max((_text_width(cell) for row in cells for cell in row), default=0))
    if not cells:
        yield ", ".join(names)
    for number, row in enumerate(cells, 1):
        yield f"-[ {number} ]".ljust(rule, "-")
        for name, cell in zip(names, row, strict=True):
            for at, line in enumerate(_lines_of_cell(cell, room)):
                yield f"{set_cell_size('' if at else name, label)} | {line}".rstrip()


def _lines_of_cell(text: str, width: int) -> Iterator[str]:
    """The lines of a text, each at most so wide, broken behind spaces and punctuation where possible."""
    from rich.cells import cell_len, chop_cells

    for written in text.split("\n"):
        if cell_len(written) <= width:
            yield written
            continue
        line = ""
        for piece in re.findall(r".+?(?:[\s,./_-]+|$)", written):
            if line and cell_len(line + piece.rstrip()) > width:
                yield line.rstrip()
                line = ""
            *full, line = (
                chop_cells(line + piece, width) if cell_len((line + piece).rstrip()) > width else [line + piece]
            )
            yield from full
        yield line.rstrip()


def _text_width(text: str) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, text.split("\n")))


def _cell(value: Any, *, is_count: bool) -> str:
    if value is None or isinstance(value, bool):
        return {None: "", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return plain(value).expandtabs()
    if is_count and isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, int | float | list | tuple | dict):
        return plain(_scalar_text(value))
    return plain(json.dumps(value, ensure_ascii=False, default=_scalar_text))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def wrapped_lines(text: str, start: str, indent: str) -> list[str]:
    """Returns a text for stderr as lines, no longer than a terminal is wide; in a file each stays whole."""
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else 100_000
    return textwrap.wrap(
        text, max(width, 40), initial_indent=start, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
