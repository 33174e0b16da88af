"""The cells of tables for people: JSON where values are nested, and no form of Python's own."""

import io
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from dagster_airbyte_proto.cli.output import Answer, Grid, show, value_text

_NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
_CELLS: list[tuple[Any, str]] = [
    (None, ""),
    (True, "true"),
    (b"\xff", "/w=="),
    (Decimal("1.50"), "1.50"),
    (_NOON, "2026-11-01 12:00:00+00:00"),
    ({"at": _NOON, "bytes": b"\xff", "no": None}, '{"at": "2026-11-01 12:00:00+00:00", "bytes": "/w==", "no": null}'),
    ([("k", False)], '[["k", false]]'),
    ((1, None), "[1, null]"),
]


@pytest.mark.parametrize(("value", "text"), _CELLS)
def test_no_cell_shows_a_value_as_python_writes_it(value: Any, text: str) -> None:
    assert value_text(value) == text
    written = io.StringIO()
    show(Answer(None, (Grid(["first", "second"], [["x", value]]),)), written, as_json=False)
    assert written.getvalue().rstrip().splitlines()[-1].removeprefix(" x").strip() == text
