"""Real taps that read files, synced twice: each value as the file has it."""

import csv
import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.tap_home import TapHome

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(300)]

_CITIES = [
    {"id": "1", "name": "Zürich 🏔", "price": "1.50", "founded": "0058-01-01", "Mixed Case": "a"},
    {"id": "2", "name": 'O\'Fallon, "Mo"', "price": "", "founded": "1850-02-28", "Mixed Case": ""},
    {"id": "3", "name": "two\nlines", "price": "12.3400", "founded": "", "Mixed Case": "x"},
]
_NEW = {"id": "4", "name": "new", "price": "7", "founded": "", "Mixed Case": ""}
_PEOPLE: list[dict[str, Any]] = [
    {"id": 1, "name": "Zürich", "price": 12.34, "tags": ["a", None], "at": "2024-02-29T12:00:00.5Z", "flag": False},
    {"id": 2, "name": None, "price": None, "tags": [], "at": "2024-03-01T00:00:00+02:00", "o": {"é": [True, None]}},
    {"id": 3, "price": -1e-300, "whole": 9223372036854775807},
]


def _write_csv(path: Path, rows: Sequence[Mapping[str, str]], *, seconds: int = 0) -> None:
    """Taps tell a file that changed by when it was written, in whole seconds."""
    with path.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    _touch(path, seconds)


def _touch(path: Path, seconds: int) -> None:
    at = 1_700_000_000 + seconds
    os.utime(path, (at, at))


def test_lines_of_json_land_as_they_are(tmp_path: Path, open_tap: Callable[..., TapHome]) -> None:
    file = tmp_path / "people.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in _PEOPLE))
    _touch(file, 0)
    config = {"path": str(file), "stream_name": "people", "primary_keys": ["id"]}
    home = open_tap({"package": "tap-jsonl==0.3.1"})
    home.connect(config)
    assert home.sync()["people"] == 3
    new = {"id": 4, "name": "new"}
    file.write_text("".join(json.dumps(row) + "\n" for row in [*_PEOPLE, new]))
    _touch(file, 60)
    assert home.sync()["people"] == 4
    columns = ("id", "name", "price", "tags", "at", "flag", "o", "whole")
    found = [{name: row[name] for name in columns} for row in home.rows("people")]
    for row in found:
        row |= {name: json.loads(row[name]) for name in ("tags", "o") if row[name] is not None}
    meant = [{**dict.fromkeys(columns), **row} for row in (*_PEOPLE, new)]
    for row in meant:
        row["at"] = datetime.fromisoformat(row["at"]).astimezone(UTC) if row["at"] else None
    assert found == meant


@pytest.mark.nightly
def test_a_file_lands_as_it_is_written_and_is_read_again_when_it_changed(
    tmp_path: Path, open_tap: Callable[..., TapHome]
) -> None:
    file = tmp_path / "cities.csv"
    _write_csv(file, _CITIES)
    source = {"path": str(file), "format": "csv", "table_name": "cities", "primary_keys": ["id"]}
    home = open_tap({"package": "tap-spreadsheets==1.1.2"})
    home.connect({"files": [source]})
    assert [home.sync()["cities"] for _ in range(2)] == [3, 0]
    _write_csv(file, [*_CITIES, _NEW], seconds=60)
    assert home.sync()["cities"] == 4
    # It calls columns by names of its own.
    meant = [{**row, "mixed_case": row["Mixed Case"]} for row in (*_CITIES, _NEW)]
    columns = [name for name in meant[0] if name != "Mixed Case"]
    found = [{name: row[name] for name in columns} for row in home.rows("cities")]
    assert found == [{name: row[name] for name in columns} for row in meant]
