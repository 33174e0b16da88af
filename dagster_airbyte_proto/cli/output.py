"""The answer of a command, and how it is printed: tables for people, or one JSON document.

rich is imported only where something is drawn, so that `--json` and `--help` do not wait for it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TextIO

from dagster_airbyte_proto.errors import ProtoError

_FILE_COLUMNS = 10_000


class Grid(NamedTuple):
    """A table for people. A column with only numbers is aligned to the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


class Answer(NamedTuple):
    """The answer of a command. `value` is the JSON document, None if there is none; `parts` is the text for people."""

    value: Any
    parts: tuple[str | Grid, ...]
    exit_code: int = 0


def show(answer: Answer, stdout: TextIO, *, as_json: bool) -> None:
    if as_json and answer.value is not None:
        stdout.write(json_text(answer.value, pretty=stdout.isatty()) + "\n")
    elif answer.parts:
        _draw(answer.parts, stdout)
    stdout.flush()


def json_text(value: Any, *, pretty: bool = False) -> str:
    """A JSON document in ASCII, which every terminal and pipe can show. Values that JSON lacks (NaN) become null."""
    indent = 2 if pretty else None
    try:
        return json.dumps(value, allow_nan=False, indent=indent)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, indent=indent)


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
    text = plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return text if len(text) <= max_characters else text[: max_characters - 1] + "…"


def counted(number: int, noun: str) -> str:
    """`1 load`, `2 loads`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def time_text(at: datetime | None) -> str:
    """A time in a table, to the second; empty for None."""
    return "" if at is None else at.isoformat(sep=" ", timespec="seconds")


def _draw(parts: Sequence[str | Grid], stdout: TextIO) -> None:
    from rich.console import Console

    # A file or a pipe has no width, so lines are not wrapped there.
    console = Console(file=stdout, width=None if stdout.isatty() else _FILE_COLUMNS, highlight=False, emoji=False)
    # Captured and written by us: rich itself would exit with 1 if the reader has closed the pipe.
    with console.capture() as drawn:
        for part in parts:
            if isinstance(part, str):
                console.print(plain(part, max_characters=100_000), markup=False, soft_wrap=True)
            else:
                console.print(_table(part))
    stdout.write(drawn.get())


def _table(grid: Grid) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate(grid.columns):
        is_number = all(isinstance(row[number], int | float) for row in grid.rows)
        table.add_column(Text(plain(name)), justify="right" if grid.rows and is_number else "left", overflow="fold")
    for row in grid.rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    return table


def _cell(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return plain(value)
    return plain(json.dumps(value, ensure_ascii=False, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
