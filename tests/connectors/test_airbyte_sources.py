"""Real connectors from the package index into real Iceberg tables, by the command line, as a user would."""

import csv
import datetime as dt
import json
import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.packages.interpreters import find_python

pytestmark = [pytest.mark.nightly, pytest.mark.connectors, pytest.mark.spark, pytest.mark.timeout(900)]

_ROOT = Path(__file__).parents[2]
_USERS = 10_000
_HARDCODED = 500
_SECRET = "hunter22-of-the-connectors"
_CITIES = [
    {"id": "1", "name": "Zürich 🏔", "price": "1.5", "founded": "0058-01-01"},
    {"id": "2", "name": 'O\'Fallon, "Mo"', "price": "", "founded": "1850-02-28"},
]
_LAUNCHES: Mapping[str, Mapping[str, str]] = {
    "shop": {"package": "airbyte-source-faker==7.2.1", "executable": "source-faker"},
    "cities": {"package": "airbyte-source-file==0.5.39", "executable": "source-file", "python": "3.10"},
    "smoke": {"package": "airbyte-source-smoke-test==0.1.2", "executable": "source-smoke-test"},
    "hard": {"package": "airbyte-source-hardcoded-records==0.0.48", "executable": "source-hardcoded-records"},
}
_ODD_SCHEMA = {
    "whole": {"type": ["null", "integer"]},
    "huge": {"type": "number", "airbyte_type": "big_integer"},
    "real": {"type": ["number", "null"]},
    "text": {"type": "string"},
    "day": {"type": "string", "format": "date"},
    "at": {"type": "string", "format": "date-time", "airbyte_type": "timestamp_with_timezone"},
    "local": {"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"},
    "blob": {"type": "string", "contentEncoding": "base64"},
    "flag": {"type": "boolean"},
    "list": {"type": "array", "items": {"type": "integer"}},
    "days": {"type": "array", "items": {"type": "string", "format": "date"}},
    "grid": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
    "thing": {"type": "object"},
    "Text": {"type": "string"},
}
# A field, what the source sends of it, and what stands in the table.
_FITS: Sequence[tuple[str, Any, Any]] = [
    ("whole", (1 << 63) - 1, (1 << 63) - 1),
    ("huge", 10**38 - 1, 10**38 - 1),
    ("real", 1e300, 1e300),
    ("text", "Zoë 🦊 \x00", "Zoë 🦊 \x00"),
    ("day", "2024-02-29", "2024-02-29"),
    ("at", "2024-02-29T12:00:00.123456+05:30", "2024-02-29T06:30:00.123456Z"),
    ("local", "2024-02-29 12:00:00.5", "2024-02-29T12:00:00.500000"),
    ("blob", "aGVsbG8=", "aGVsbG8="),
    ("flag", False, False),
    ("list", [1, None, 3], [1, None, 3]),
    ("grid", [[1, 2.5], []], [[1.0, 2.5], []]),
    ("thing", {"z": [True, None], "é": "ü"}, {"z": [True, None], "é": "ü"}),
    ("Text", "its own column", "its own column"),
]
_MISFITS: Sequence[tuple[str, Any, Any, str]] = [
    ("whole", 1 << 63, None, "whole: DESTINATION_FIELD_SIZE_LIMITATION"),
    ("huge", 1.5, None, "huge: DESTINATION_TYPECAST_ERROR"),
    ("real", "1.5", None, "real: DESTINATION_TYPECAST_ERROR"),
    ("day", "2024-02-30", None, "day: DESTINATION_TYPECAST_ERROR"),
    ("at", "2024-02-29", None, "at: DESTINATION_TYPECAST_ERROR"),
    ("local", "2024-02-29T12:00:00+02:00", None, "local: DESTINATION_TYPECAST_ERROR"),
    ("blob", "!!", None, "blob: DESTINATION_TYPECAST_ERROR"),
    ("flag", "true", None, "flag: DESTINATION_TYPECAST_ERROR"),
    ("list", [1, "x"], [1, None], "list.1: DESTINATION_TYPECAST_ERROR"),
    ("days", ["nope", "2024-01-01"], [None, "2024-01-01"], "days.0: DESTINATION_TYPECAST_ERROR"),
    ("grid", "flat", None, "grid: DESTINATION_TYPECAST_ERROR"),
]


class Table(NamedTuple):
    rows: int
    keys: int | None
    content: list[dict[str, Any]]


class Told(NamedTuple):
    code: int
    out: str
    err: str


class House:
    """A working directory with connections; commands run in it as processes of their own."""

    def __init__(self, folder: Path, environments: Path) -> None:
        self.folder = folder
        home = folder / ".airbyte-proto"
        home.mkdir()
        (home / "venvs").symlink_to(environments)

    def connect(
        self,
        name: str,
        config: Mapping[str, Any],
        launch: Mapping[str, Any] | None = None,
        *,
        protocol: str = "airbyte",
        batch_folder: str | None = None,
        **more: Any,
    ) -> None:
        launch = launch or {"kind": "pypi", **_LAUNCHES[name]}
        connector = {"protocol": protocol, "launch": dict(launch), "batch_folder": batch_folder}
        document = {"connector": connector, "config": dict(config), **more}
        (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(document, allow_unicode=True))

    def run(self, *words: str) -> Told:
        ended = subprocess.run(
            [sys.executable, "-m", "dagster_airbyte_proto", *words],
            cwd=self.folder,
            env={**os.environ, "CONNECTORS_SECRET": _SECRET},
            capture_output=True,
            text=True,
            check=False,
        )
        return Told(ended.returncode, ended.stdout, ended.stderr)

    def json(self, *words: str) -> Any:
        told = self.run(*words, "--json")
        assert told.code == 0, told
        assert "Traceback" not in told.err
        return json.loads(told.out)

    def tables(self, names: Sequence[str], *, keyed: Sequence[str] = (), whole: Sequence[str] = ()) -> dict[str, Table]:
        """All tables in one query, for each starts a JVM. `whole` ones come with their rows."""
        options = {
            "timestampFormat": "yyyy-MM-dd''T''HH:mm:ss.SSSSSSXXX",
            "timestampNTZFormat": "yyyy-MM-dd''T''HH:mm:ss.SSSSSS",
            "ignoreNullFields": "false",
        }
        written = ", ".join(f"'{name}', \"{value.replace(chr(39) * 2, chr(39))}\"" for name, value in options.items())
        selects = [
            f"SELECT '{name}', count(*), {'count(DISTINCT id)' if name in keyed else 'NULL'},"
            f" {f'to_json(collect_list(struct(*)), map({written}))' if name in whole else 'NULL'}"
            f" FROM lake.{'.'.join(f'`{part}`' for part in name.split('.'))}"
            for name in names
        ]
        answer = self.json("query", " UNION ALL ".join(selects))
        return {name: Table(rows, keys, json.loads(content or "[]")) for name, rows, keys, content in answer["rows"]}


class Landed(NamedTuple):
    house: House
    reports: Mapping[str, Any]
    tables: Mapping[str, Table]

    def committed(self, report: str) -> dict[str, int]:
        return {name: told["committed"] for name, told in self.reports[report]["streams"].items()}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, connector_environments: Path) -> House:
    return House(tmp_path_factory.mktemp("connectors"), connector_environments)


@pytest.fixture(scope="module")
def landed(house: House) -> Landed:
    """Every connector synced, two at a time; then one look at all tables."""
    shop = {"count": _USERS, "seed": 1, "always_updated": False}
    house.connect("shop", shop)
    house.connect("hard", {"count": _HARDCODED})
    house.connect("smoke", {"all_fast_streams": True, "custom_scenarios": [_odd_scenario()]})
    house.connect(
        "few", {**shop, "count": 50, "note": "${env:CONNECTORS_SECRET}"}, {"kind": "pypi", **_LAUNCHES["shop"]}
    )
    house.connect("replayed", {}, {"kind": "replay", "recording": str(house.folder / "recording")})
    syncs = ["smoke", "hard"]
    if _has_python_3_10():
        _write_cities(house)
        syncs.append("cities")
    with ThreadPoolExecutor(2) as pool:
        others = pool.submit(lambda: {name: house.json("sync", f"{name}.yaml") for name in syncs})
        reports = pool.submit(_shop_and_replay, house).result() | others.result()
    names = [told["table"] for report in reports.values() for told in report["streams"].values()]
    names = list(dict.fromkeys(name.replace("`", "").removeprefix("lake.") for name in names))
    keyed = [name for name in names if name.startswith("shop.")]
    whole = [name for name in names if name.startswith(("smoke.", "cities."))]
    return Landed(house, reports, house.tables(names, keyed=keyed, whole=whole))


def _shop_and_replay(house: House) -> dict[str, Any]:
    found = {name: house.json("sync", "shop.yaml") for name in ("shop", "shop again")}
    house.json("state", "reset", "shop", "users")
    found["shop anew"] = house.json("sync", "shop.yaml", "--streams", "users,products")
    found["rolled back"] = {"streams": {}, "changes": house.json("state", "rollback", "shop", "--to", "1")["changes"]}
    house.json("record", "few.yaml", "recording")
    found["replayed"] = house.json("sync", "replayed.yaml")
    return found


def test_counts_agree_with_the_tables_exactly(landed: Landed) -> None:
    for name, report in landed.reports.items():
        for stream, told in report["streams"].items():
            assert told["status"] == "complete", (name, stream, told)
            assert (told["emitted"], told["rejected"]) == (told["committed"], 0), (name, stream)
            table = told["table"].replace("`", "").removeprefix("lake.")
            if name.startswith("shop "):
                continue
            assert landed.tables[table].rows == told["committed"], (name, stream)
    assert landed.committed("shop") == {"users": _USERS, "purchases": _USERS, "products": 100}
    assert set(landed.committed("hard").values()) == {_HARDCODED}


def test_a_second_sync_adds_nothing_and_one_from_a_reset_state_doubles_nothing(landed: Landed) -> None:
    assert landed.committed("shop again") == {"users": 0, "purchases": 0, "products": 0}
    assert landed.committed("shop anew") == {"users": _USERS, "products": 0}
    for name, rows in (("users", _USERS), ("purchases", _USERS), ("products", 100)):
        table = landed.tables[f"shop.{name}"]
        assert (table.rows, table.keys) == (rows, rows)


def test_the_sample_of_the_readme_loses_and_doubles_no_row_when_it_is_interrupted(
    tmp_path: Path, connector_environments: Path
) -> None:
    house = House(tmp_path, connector_environments)
    [sample] = re.findall(r"```yaml\n(# shop\.yaml.*?)```", (_ROOT / "README.md").read_text(), re.DOTALL)
    shop = yaml.safe_load(sample)
    house.connect("shop", {**shop["config"], "count": _USERS}, shop["connector"]["launch"])
    command = [sys.executable, "-m", "dagster_airbyte_proto", "sync", "shop.yaml", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as syncing:
        assert syncing.stderr is not None
        next(line for line in syncing.stderr if re.search(r"[1-9][\d,]* rows", line))
        syncing.send_signal(signal.SIGINT)
        report = json.loads(syncing.communicate(timeout=120)[0])
    assert report["status"] == "cancelled"
    assert any(stream["status"] == "cancelled" for stream in report["streams"].values())
    again = house.json("sync", "shop.yaml")
    assert again["status"] == "complete"
    tables = house.tables(["shop.users", "shop.purchases"], keyed=["shop.users", "shop.purchases"])
    assert {name: (table.rows, table.keys) for name, table in tables.items()} == {
        "shop.users": (_USERS, _USERS),
        "shop.purchases": (_USERS, _USERS),
    }


def test_a_rollback_puts_each_state_back_to_what_its_run_left(landed: Landed) -> None:
    changed = {change["stream"]: change["state"] for change in landed.reports["rolled back"]["changes"]}
    assert changed["users"] == landed.reports["shop"]["streams"]["users"]["state"]


def test_every_value_that_the_source_has_stands_in_its_table(landed: Landed) -> None:
    inside = "lib/python*/site-packages/airbyte/cli/smoke_test_source/_scenarios.py"
    file = next(landed.house.folder.glob(f".airbyte-proto/venvs/airbyte-source-smoke-test-*/{inside}"))
    module = runpy.run_path(str(file))
    compared = 0
    for scenario in module["PREDEFINED_SCENARIOS"]:
        if scenario["name"] in module["HIGH_VOLUME_SCENARIO_NAMES"]:
            continue
        columns = scenario["json_schema"]["properties"]
        sent = module["get_scenario_records"](scenario)
        rows = landed.tables[f"smoke.{scenario['name']}"].content
        assert _canonical(_read_back(row, columns) for row in rows) == _canonical(
            {name: _meant(record.get(name), columns[name]) for name in columns} for record in sent
        ), scenario["name"]
        assert all(not row["_airbyte_meta"]["changes"] for row in rows), scenario["name"]
        compared += len(rows)
    assert compared > 50


def test_what_does_not_fit_is_null_with_a_reason_and_what_fits_is_kept(landed: Landed) -> None:
    rows = {row["id"]: row for row in landed.tables["smoke.odd values"].content}
    fits = rows.pop(0)
    for field, _, expected in _FITS:
        (column,) = [name for name in fits if name == field or name.startswith(f"{field}_")]
        found = json.loads(fits[column]) if field == "thing" else fits[column]
        assert found == expected, field
    for number, (field, _, expected, change) in enumerate(_MISFITS, start=1):
        row = rows.pop(number)
        assert row[field] == expected, field
        assert [f"{told['field']}: {told['reason']}" for told in row["_airbyte_meta"]["changes"]] == [change]
    assert not rows
    told = landed.reports["smoke"]["streams"]["odd values"]
    assert (told["changed"], told["ignored_fields"]) == (len(_MISFITS), {"undeclared": 1})


@pytest.mark.skipif("not _has_python_3_10()", reason="source-file 0.5 needs Python 3.10, and there is none here")
def test_a_local_file_lands_as_it_is_written(landed: Landed) -> None:
    rows = sorted(landed.tables["cities.cities"].content, key=lambda row: row["id"])
    found = [[row["id"], row["name"], row["price"], row["founded"]] for row in rows]
    assert found == [[1, _CITIES[0]["name"], 1.5, "0058-01-01"], [2, _CITIES[1]["name"], None, "1850-02-28"]]


def test_a_recording_of_a_real_run_replays_it_and_holds_no_secret(landed: Landed) -> None:
    assert landed.committed("replayed") == {"users": 50, "purchases": 50, "products": 50}
    kept = [path.read_text() for path in (landed.house.folder / "recording").rglob("*") if path.is_file()]
    assert any('"note"' in text and "***" in text for text in kept)
    assert not any(_SECRET in text for text in kept)


def test_what_a_real_connector_is_asked_wrongly_is_told_plainly(landed: Landed) -> None:
    house = landed.house
    saved = house.json("discover", "shop.yaml", "--save")
    assert [change.partition(":")[0] for change in saved["changes"]] == ["products", "purchases", "users"]
    again = house.run("discover", "shop.yaml", "--save")
    assert again.out.splitlines()[-1] == "nothing changed"
    house.connect("wrong", {"count": "many", "seed": 1, "parallelism": 0}, {"kind": "pypi", **_LAUNCHES["shop"]})
    told = house.run("sync", "wrong.yaml")
    assert (told.code, told.out) == (2, "")
    assert (
        told.err.startswith("error: config in wrong.yaml: ") and "count: must be a whole number; found text" in told.err
    )
    assert "Traceback" not in told.err
    told = house.run("sync", "shop.yaml", "--streams", "user")
    assert (told.code, told.out) == (2, "")
    assert told.err == "error: choosing streams (--streams): there is no stream 'user'\nDid you mean 'users'?\n"


def _has_python_3_10() -> bool:
    try:
        find_python("3.10")
    except ConfigError:
        return False
    return True


def _odd_scenario() -> dict[str, Any]:
    """One row in which everything fits, and after it one for each value that does not."""
    fits = {"id": 0, "undeclared": 1, **{field: value for field, value, _ in _FITS}}
    misfits = [{"id": number, field: value} for number, (field, value, *_) in enumerate(_MISFITS, start=1)]
    properties = {"id": {"type": "integer"}, **_ODD_SCHEMA}
    schema = {"type": "object", "properties": properties}
    return {"name": "odd values", "json_schema": schema, "primary_key": [["id"]], "records": [fits, *misfits]}


def _write_cities(house: House) -> None:
    file = house.folder / "cities.csv"
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, list(_CITIES[0]))
        writer.writeheader()
        writer.writerows(_CITIES)
    config = {"dataset_name": "cities", "format": "csv", "url": str(file), "provider": {"storage": "local"}}
    house.connect("cities", config)


def _canonical(records: Any) -> list[str]:
    return sorted(json.dumps(record, sort_keys=True) for record in records)


def _read_back(row: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """A row in the source's own terms: objects and unions stand in the table as text."""
    return {name: _undone(row[name], schema) for name, schema in columns.items()}


def _undone(value: Any, schema: Any) -> Any:
    if value is None:
        return None
    if _is_text(schema):
        return json.loads(value)
    if schema.get("type") == "array":
        return [_undone(item, schema["items"]) for item in value]
    return _meant(value, schema)


def _meant(value: Any, schema: Any) -> Any:
    """A value such that two ways to write it are equal."""
    if isinstance(value, str) and schema.get("format") == "date-time":
        at = dt.datetime.fromisoformat(value)
        return at.astimezone(dt.UTC).isoformat() if at.tzinfo else at.isoformat()
    return float(value) if schema.get("type") in ("number", ["null", "number"]) and value is not None else value


def _is_text(schema: Any) -> bool:
    """Whether a table holds it as JSON text: an object, a choice of several types, or an array of no named type."""
    if "oneOf" in schema:
        return {"type": "null"} not in schema["oneOf"]
    types = schema.get("type")
    return types in ("object", ["null", "object"]) or (types == "array" and "items" not in schema)
