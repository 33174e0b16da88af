"""A connection on its way to another process takes its files and secrets along, and shows no secret."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError

_ENVIRONMENT = {"PASSWORD": "correct-horse", "HASH_KEY": "a key that is long enough", "GEO_TOKEN": "staple"}


def _written(folder: Path, **more: Any) -> Connection:
    (folder / "token").write_text("battery\n")
    (folder / "config.yaml").write_text(yaml.safe_dump({"password": "${env:PASSWORD}", "token": "${file:token}"}))
    (folder / "geo.yaml").write_text(yaml.safe_dump({"token": "${env:GEO_TOKEN}"}))
    launch = {"kind": "local", "command": ["source"]}
    enrichment = {
        "connector": {"protocol": "syncmaven", "launch": launch},
        "config_file": "geo.yaml",
        "columns": {"city": "string"},
    }
    document = {
        "connector": {"protocol": "airbyte", "launch": launch},
        "config_file": "config.yaml",
        "hash_key": "${env:HASH_KEY}",
        "transforms": [{"validate": [{"assert_not_null": "id"}]}, enrichment],
        "run_on": "executors",
        **more,
    }
    (folder / "shop.yaml").write_text(yaml.safe_dump(document))
    return Connection.from_file(folder / "shop.yaml")


def test_it_is_filled_alike_where_neither_files_nor_variables_are(tmp_path: Path) -> None:
    here = _written(tmp_path)
    portable = here.for_another_process(_ENVIRONMENT)
    assert not any(secret in repr(portable) for secret in ("correct-horse", "battery", "staple", "long enough"))
    expected = [each.filled_config(_ENVIRONMENT) for each in (here, here.enrichments[1])]
    key = here.filled_hash_key(_ENVIRONMENT)
    for file in tmp_path.iterdir():
        file.unlink()
    there = Connection.from_another_process(portable, lambda path: f"the {path} of the driver".encode())
    assert [each.filled_config({}) for each in (there, there.enrichments[1])] == expected
    assert there.filled_hash_key({}) == key
    assert there.written_config() == {"password": "${env:PASSWORD}", "token": "${file:token}"}
    assert (there.name, there.transforms[0], there.run_on) == (here.name, here.transforms[0], "executors")


def test_the_files_that_its_connectors_are_made_of_are_those_of_the_sender(tmp_path: Path) -> None:
    component = {"connector": {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": "mask.wasm"}}}
    launch = {"kind": "manifest", "path": "api.yaml", "custom_components": True}
    here = _written(
        tmp_path,
        connector={"protocol": "airbyte", "launch": launch},
        transforms=[{**component, "columns": {"name": "string"}}],
    )
    assert here.files == tuple(tmp_path / name for name in ("api.yaml", "components.py", "mask.wasm"))
    (tmp_path / "api.yaml").write_text("here")
    assert here.read_file(tmp_path / "api.yaml") == b"here"
    there = Connection.from_another_process(here.for_another_process(_ENVIRONMENT), lambda path: path.name.encode())
    for connection in (there, *there.enrichments.values()):
        assert [connection.read_file(path) for path in here.files] == [path.name.encode() for path in here.files]


def test_the_catalog_of_a_tap_and_code_that_is_allowed_are_files_of_it(tmp_path: Path) -> None:
    tap = {"protocol": "singer", "launch": {"kind": "local", "command": ["tap"]}, "catalog_file": "catalog.json"}
    assert _written(tmp_path, connector=tap, transforms=[]).files == (tmp_path / "catalog.json",)
    manifest = {"protocol": "airbyte", "launch": {"kind": "manifest", "path": "api.yaml"}}
    assert _written(tmp_path, connector=manifest, transforms=[]).files == (tmp_path / "api.yaml",)


def test_a_secret_that_is_missing_here_is_named_here(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="GEO_TOKEN is not set"):
        _written(tmp_path).for_another_process({"PASSWORD": "a", "HASH_KEY": "b" * 16})


def test_only_a_sync_into_tables_runs_on_executors(tmp_path: Path) -> None:
    to = {"connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": ["destination"]}}}
    with pytest.raises(ConfigError, match="run_on: only for one that syncs into tables"):
        _written(tmp_path, to=to)
