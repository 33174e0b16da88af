"""The generator's output is what its recipe says."""

import json
import subprocess
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import bench.replay_source
from bench.generate import Dialect, Generated, Recipe, generate

_SMALL = Recipe(records=3_000, run_length=100, state_every=400)


def _made(tmp_path: Path, recipe: Recipe) -> Generated:
    return generate(recipe, tmp_path / f"{recipe.name}.jsonl")


def _messages(made: Generated) -> list[dict[str, Any]]:
    return [json.loads(line) for line in made.path.read_bytes().splitlines()]


def _streams(messages: list[dict[str, Any]]) -> list[str]:
    return [message["record"]["stream"] for message in messages if message["type"] == "RECORD"]


@pytest.mark.parametrize("dialect", [Dialect.COMPACT, Dialect.SPACED])
def test_every_record_is_there_and_fits_its_schema(tmp_path: Path, dialect: Dialect) -> None:
    made = _made(tmp_path, _SMALL._replace(dialect=dialect))
    catalog = json.loads(made.catalog_path.read_bytes())["catalog"]["streams"]
    schemas = {stream["name"]: stream["json_schema"] for stream in catalog}
    validators = {name: jsonschema.Draft7Validator(schema) for name, schema in schemas.items()}
    records = [message["record"] for message in _messages(made) if message["type"] == "RECORD"]
    assert Counter(record["stream"] for record in records) == made.records
    assert made.records == {"users": 1000, "purchases": 1000, "products": 1000}
    for record in records:
        validators[record["stream"]].validate(record["data"])
        assert record["data"].keys() == schemas[record["stream"]]["properties"].keys()


def test_a_catalog_may_tell_of_the_columns_in_another_order(tmp_path: Path) -> None:
    straight, turned = (_made(tmp_path, _SMALL._replace(is_catalog_reversed=it)) for it in (False, True))
    assert straight.path.read_bytes() == turned.path.read_bytes()
    schemas = [json.loads(made.catalog_path.read_bytes())["catalog"]["streams"] for made in (straight, turned)]
    for one, other in zip(*schemas, strict=True):
        assert [*one["json_schema"]["properties"].items()] == [*other["json_schema"]["properties"].items()][::-1]


def test_a_record_takes_about_470_bytes(tmp_path: Path) -> None:
    made = _made(tmp_path, Recipe(records=9_000))
    assert made.size_bytes == made.path.stat().st_size
    assert made.size_bytes / made.total_records == pytest.approx(470, rel=0.03)


def test_the_dialects_differ_by_spaces_alone(tmp_path: Path) -> None:
    compact, spaced = (_made(tmp_path, _SMALL._replace(dialect=it)) for it in (Dialect.COMPACT, Dialect.SPACED))
    assert _messages(compact) == _messages(spaced)
    for line in compact.path.read_text().splitlines():
        assert line == json.dumps(json.loads(line), separators=(",", ":"), ensure_ascii=False)
    for line in spaced.path.read_text().splitlines():
        assert line == json.dumps(json.loads(line), ensure_ascii=False)


@pytest.mark.parametrize("run_length", [1, 100])
def test_records_of_a_stream_stand_in_runs(tmp_path: Path, run_length: int) -> None:
    streams = _streams(_messages(_made(tmp_path, _SMALL._replace(run_length=run_length))))
    assert {len(list(run)) for _, run in groupby(streams)} == {run_length}


@pytest.mark.parametrize("state_every", [10, 400])
def test_a_state_counts_the_records_before_it_and_none_is_left_without(tmp_path: Path, state_every: int) -> None:
    made = _made(tmp_path, _SMALL._replace(state_every=state_every))
    owed, seen, counts = Counter[str](), Counter[str](), []
    for message in _messages(made):
        if message["type"] == "RECORD":
            owed[message["record"]["stream"]] += 1
            continue
        state = message["state"]
        name = state["stream"]["stream_descriptor"]["name"]
        seen[name] += owed[name]
        assert state["sourceStats"]["recordCount"] == owed.pop(name)
        assert state["stream"]["stream_state"] == {"id": seen[name]}
        counts.append(int(state["sourceStats"]["recordCount"]))
    assert not owed
    assert len(counts) == made.states
    assert max(counts) == state_every
    assert counts.count(state_every) == 3 * (1000 // state_every)


def test_streams_and_columns_are_as_many_as_asked(tmp_path: Path) -> None:
    wide = _made(tmp_path, Recipe(records=20, streams=2, columns=500))
    assert wide.records == {"wide": 10, "wide_1": 10}
    assert {len(it["record"]["data"]) for it in _messages(wide) if it["type"] == "RECORD"} == {500}
    many = _made(tmp_path, Recipe(records=1_000, streams=100))
    assert len(many.records) == 100
    assert set(many.records.values()) == {10}


def test_singer_records_follow_their_schemas_and_hold_the_same_data(tmp_path: Path) -> None:
    made = _made(tmp_path, _SMALL._replace(dialect=Dialect.SINGER))
    messages = _messages(made)
    assert [message["type"] for message in messages[:4]] == ["SCHEMA", "SCHEMA", "SCHEMA", "RECORD"]
    records = [(it["stream"], it["record"]) for it in messages if it["type"] == "RECORD"]
    airbyte = [it["record"] for it in _messages(_made(tmp_path, _SMALL)) if it["type"] == "RECORD"]
    assert records == [(record["stream"], record["data"]) for record in airbyte]


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    made = _made(tmp_path, _SMALL)
    written_at = made.path.stat().st_mtime_ns
    assert _made(tmp_path, _SMALL) == made
    assert made.path.stat().st_mtime_ns == written_at


def test_the_replay_source_plays_the_file_as_often_as_asked_between_statuses(tmp_path: Path) -> None:
    made = _made(tmp_path, _SMALL)
    config = {"recording": str(made.path), "catalog": str(made.catalog_path), "repeat": 2}
    discovered = json.loads(_replay(tmp_path, config, "discover"))
    chosen = {"streams": [{"stream": stream} for stream in discovered["catalog"]["streams"]]}
    (tmp_path / "chosen.json").write_text(json.dumps(chosen))
    lines = _replay(tmp_path, config, "read", "--catalog", str(tmp_path / "chosen.json"))
    body = made.path.read_bytes()
    assert body + body in lines
    statuses = [json.loads(line)["trace"]["stream_status"]["status"] for line in lines.replace(body, b"").splitlines()]
    assert statuses == ["STARTED"] * 3 + ["COMPLETE"] * 3


def _replay(tmp_path: Path, config: dict[str, Any], command: str, *more: str) -> bytes:
    (tmp_path / "config.json").write_text(json.dumps(config))
    program = [sys.executable, "-I", "-S", bench.replay_source.__file__, command]
    return subprocess.check_output([*program, "--config", str(tmp_path / "config.json"), *more])
