"""Connection files: reading, errors, and filling from the environment."""

import datetime
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dagster_airbyte_proto.connection import (
    Connection,
    DockerLaunch,
    LocalLaunch,
    ManifestLaunch,
    PypiLaunch,
    ReplayLaunch,
    StreamOptions,
)
from dagster_airbyte_proto.connection.launch import Connector
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import ReadMode, StreamId, WriteMode

LOCAL = "connector: {protocol: airbyte, launch: {kind: local, command: [source-faker]}}\n"
CONNECTOR: dict[str, Any] = {"protocol": "airbyte", "launch": {"kind": "local", "command": ["source-faker"]}}

FULL = """\
name: shop
connector:
  protocol: airbyte
  launch: {kind: local, command: [source-faker]}
config: {count: 1000, seed: 1}
streams:
  users: {read: incremental, write: append_dedup, primary_key: [id], cursor: updated_at}
  purchases: {write: overwrite, select: [id, product_id], rename: purchases_raw}
  "*": {write: append}
destination:
  namespace: shop
  table_prefix: ""
  schema_policy: evolve
  sdc_columns: true
load: {max_bytes: 128 MiB, max_seconds: 60}
"""


def read(folder: Path, text: str, name: str = "shop.yaml") -> Connection:
    file = folder / name
    file.write_text(text)
    return Connection.from_file(file)


def refused(folder: Path, text: str, name: str = "shop.yaml") -> str:
    with pytest.raises(ConfigError) as error:
        read(folder, text, name)
    assert error.value.doing == f"connection file {folder / name}"
    return error.value.found


def test_the_documented_file_is_read_in_full(tmp_path: Path) -> None:
    shop = read(tmp_path, FULL)
    assert shop.connector.launch == LocalLaunch(kind="local", command=("source-faker",))
    assert shop.config == {"count": 1000, "seed": 1}
    assert shop.streams == {
        "users": StreamOptions(
            read=ReadMode.INCREMENTAL, write=WriteMode.APPEND_DEDUP, primary_key=(("id",),), cursor=("updated_at",)
        ),
        "purchases": StreamOptions(
            write=WriteMode.OVERWRITE, select=(("id",), ("product_id",)), rename="purchases_raw"
        ),
        "*": StreamOptions(write=WriteMode.APPEND),
    }
    assert (shop.load.max_bytes, shop.load.max_seconds) == (128 * 1024**2, 60.0)
    assert (shop.namespace, shop.destination.schema_policy) == ("shop", "evolve")
    assert shop.destination.sdc_columns


def test_a_small_file_gets_the_defaults(tmp_path: Path) -> None:
    shop = read(tmp_path, LOCAL, "my_shop2.yaml")
    assert (shop.name, shop.namespace) == ("my_shop2", "my_shop2")
    assert (shop.streams, shop.written_config()) == (None, {})
    assert shop.options(StreamId.of("anything")) == StreamOptions()


@pytest.mark.parametrize(
    ("launch", "expected"),
    [
        (
            "{kind: local, command: source-x --path 'a b'}",
            LocalLaunch(kind="local", command=("source-x", "--path", "a b")),
        ),
        (
            "{kind: pypi, package: source-x==1, executable: source-x, python: '3.10'}",
            PypiLaunch(kind="pypi", package="source-x==1", executable="source-x", python="3.10"),
        ),
        (
            "{kind: docker, image: 'airbyte/source-x:1', network: none, memory: 2g}",
            DockerLaunch(kind="docker", image="airbyte/source-x:1", network="none", memory="2g"),
        ),
    ],
)
def test_each_kind_of_launch_is_read(tmp_path: Path, launch: str, expected: object) -> None:
    assert read(tmp_path, f"connector: {{protocol: airbyte, launch: {launch}}}").connector.launch == expected


@pytest.mark.parametrize(
    "launch",
    [
        "{kind: local, command: x}",
        "{kind: pypi, package: x==1}",
        "{kind: npm, package: x@1.0.0}",
        "{kind: manifest, path: m.yaml}",
        "{kind: docker, image: x}",
        "{kind: replay, recording: r}",
    ],
)
def test_limits_are_said_in_the_same_words_for_each_kind_of_launch(tmp_path: Path, launch: str) -> None:
    limits = "{max_memory: 512 MiB, timeout_seconds: 600}"
    connector = read(tmp_path, f"connector: {{protocol: airbyte, launch: {launch}, limits: {limits}}}").connector
    assert (connector.limits.max_memory, connector.limits.timeout_seconds) == (512 << 20, 600.0)


def test_paths_start_at_the_folder_of_the_file(tmp_path: Path) -> None:
    launch = "connector: {protocol: airbyte, launch: {kind: replay, recording: recordings/shop}}\n"
    shop = read(tmp_path, launch + "config_file: secret/shop.json")
    low_code = read(tmp_path, "connector: {protocol: airbyte, launch: {kind: manifest, path: m.yaml, version: 7.39.1}}")
    assert low_code.connector.launch == ManifestLaunch(kind="manifest", path=tmp_path / "m.yaml", version="7.39.1")
    elsewhere = "{protocol: airbyte, launch: {kind: local, command: x, working_folder: ../data}}"
    launch_elsewhere = read(tmp_path, f"connector: {elsewhere}").connector.launch
    assert launch_elsewhere == LocalLaunch(kind="local", command=("x",), working_folder=tmp_path / "../data")
    assert shop.connector.launch == ReplayLaunch(kind="replay", recording=tmp_path / "recordings/shop")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/shop.json").write_text('{"emoji": "\\ud83d\\ude00", "n": 12345678901234567890}')
    assert shop.written_config() == {"emoji": "😀", "n": 12345678901234567890}


@pytest.mark.parametrize(
    ("program", "found"),
    [("../bin/source", "{folder}/../bin/source"), ("./source", "{folder}/source"), ("/bin/source", "/bin/source"),
     ("~/source", "~/source"), ("source", "source")],
)  # fmt: skip
def test_a_program_is_named_from_the_folder_of_the_file_or_looked_for(tmp_path: Path, program: str, found: str) -> None:
    text = f"connector: {{protocol: airbyte, launch: {{kind: local, command: [{program}, --flag]}}}}"
    launch = read(tmp_path, text).connector.launch
    assert isinstance(launch, LocalLaunch)
    assert os.path.normpath(launch.command[0]) == os.path.normpath(found.format(folder=tmp_path))
    assert launch.command[1:] == ("--flag",)


def test_a_connection_can_be_dumped_to_a_dict_and_validated_again(tmp_path: Path) -> None:
    shop = read(tmp_path, FULL)
    again = Connection.model_validate(shop.model_dump(mode="json"))
    assert again.model_dump() == shop.model_dump()
    assert (shop.origin, again.origin) == (tmp_path / "shop.yaml", None)
    with pytest.raises(ValidationError):
        Connection.model_validate({"name": "shop"})


@pytest.mark.parametrize(
    "streams",
    [
        ["users"],
        {"users": {"primary_key": ["id", ["a", "b"]], "cursor": ["a", "b"]}},
        {"users": {"cursor": "at"}},
        None,
    ],
)
def test_the_json_schema_for_editors_allows_every_form(streams: object) -> None:
    data: dict[str, Any] = {
        "name": "shop",
        "connector": {**CONNECTOR, "launch": {"kind": "local", "command": "source-faker"}},
    }
    data |= {"streams": streams, "load": {"max_bytes": "1 GB"}}
    Connection.model_validate(data)
    jsonschema.validate(data, Connection.model_json_schema())


def test_streams_may_be_a_list_of_names(tmp_path: Path) -> None:
    shop = read(tmp_path, LOCAL + "streams: [users, public.users, on]")
    assert shop.options(StreamId.of("users")) == StreamOptions()
    assert shop.options(StreamId.of("on")) == StreamOptions()
    assert shop.options(StreamId.of("purchases")) is None


def test_the_full_name_of_a_stream_wins_over_its_bare_name_and_that_over_the_others(tmp_path: Path) -> None:
    shop = read(tmp_path, LOCAL + 'streams: {a.users: {rename: full}, users: {rename: bare}, "*": {rename: others}}')
    chosen = [shop.options(stream) for stream in (StreamId("a", "users"), StreamId("b", "users"), StreamId(None, "x"))]
    assert [options.rename for options in chosen if options] == ["full", "bare", "others"]


def test_plain_words_are_read_as_json_reads_them(tmp_path: Path) -> None:
    config = "country: NO, on: on, day: 2024-01-01, time: 22:30, code: 007, big: 1e3, ok: true, none: null, no: , n: -1"
    assert read(tmp_path, LOCAL + f"config: {{{config}}}").config == {
        "country": "NO",
        "on": "on",
        "day": "2024-01-01",
        "time": "22:30",
        "code": "007",
        "big": 1000.0,
        "ok": True,
        "none": None,
        "no": None,
        "n": -1,
    }


def test_an_alias_repeats_what_its_anchor_says(tmp_path: Path) -> None:
    text = LOCAL + "streams: {users: &same {write: append}, purchases: *same}"
    assert read(tmp_path, text).streams == dict.fromkeys(("users", "purchases"), StreamOptions(write=WriteMode.APPEND))


def test_all_faults_are_reported_at_once_with_line_and_path(tmp_path: Path) -> None:
    text = """\
conector: 1
connector:
  protocol: airbite
  launch: {kind: locl}
streams:
  users: {wirte: append, read: sometimes}
  orders: {cursor: 3, primary_key: id}
load:
  max_bytes: plenty
  max_seconds: 0
"""
    assert (
        refused(tmp_path, text)
        == """9 faults
  line 1, conector: is not a known key; did you mean "connector"?
  line 3, connector.protocol: must be one of airbyte, singer, rapidbyte, syncmaven; did you mean "airbyte"?
  line 4, connector.launch.kind: must be one of local, pypi, npm, manifest, docker, wasm, replay; did you mean "local"?
  line 6, streams.users.read: must be one of full_refresh, incremental
  line 6, streams.users.wirte: is not a known key; did you mean "write"?
  line 7, streams.orders.primary_key: must be a list of columns: names, or lists of names that lead to nested ones
  line 7, streams.orders.cursor: must be a column, or a list of names that leads to a nested one
  line 9, load.max_bytes: must be a size such as "128 MiB", or a number of bytes
  line 10, load.max_seconds: must be more than 0"""
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("- a", "must be a mapping of keys to values; found a list"),
        ("a: b: c", "line 1: is not YAML: mapping values are not allowed here (column 5)"),
        (LOCAL + "name: a\nname: b", "line 3, name: is given twice (first on line 2)"),
        (LOCAL + "config: {a: {b: 1,\n b: 2}}", "line 3, config.a.b: is given twice (first on line 2)"),
        (LOCAL + "config: {<<: {a: 1}}", 'line 2, config: merge keys ("<<") are not read: write the keys out'),
        ("a: &x [*x]", "is nested too deeply, or holds itself by an alias"),
        ("a: \x01", "is not YAML: it holds characters that YAML does not allow"),
        ("name: shop", "connector: is missing"),
        (LOCAL + "name: 7", "line 2, name: must be text; found a whole number; put it in quotes"),
        (LOCAL + "config: [1]", "line 2, config: must be a mapping of keys to values; found a list"),
        (LOCAL + "config: {}\nconfig_file: x.json", "give config or config_file, not both"),
        (LOCAL + "streams: [a, a]", "line 2, streams: a is named twice"),
        (LOCAL + "streams: []", "line 2, streams: must not be empty"),
        (LOCAL + "streams: {a: {primary_key: [id, id]}}", "line 2, streams.a.primary_key: names a column twice"),
        (LOCAL + "load: {max_bytes: 0}", "line 2, load.max_bytes: must be more than 0"),
        (LOCAL + "load: {max_seconds: true}", "line 2, load.max_seconds: must be a number; found true or false"),
        (
            LOCAL + 'destination: {namespace: "${source}"}',
            'line 2, destination.namespace: may hold "${source_namespace}" and no other variable',
        ),
        (
            LOCAL + 'destination: {table_prefix: "${env:P}"}',
            'line 2, destination.table_prefix: "${env:…}" is filled in config only',
        ),
        (
            "connector: {protocol: airbyte, launch: {command: x}}",
            (
                "line 1, connector.launch.kind: is missing; "
                "must be one of local, pypi, npm, manifest, docker, wasm, replay"
            ),
        ),
        (
            "connector: {protocol: airbyte, launch: {kind: local, comand: x, command: 'a'}}",
            'line 1, connector.launch.comand: is not a known key; did you mean "command"?',
        ),
        (
            "connector: {protocol: airbyte, launch: {kind: local, command: []}}",
            "line 1, connector.launch.command: must not be empty",
        ),
        (
            "connector: {protocol: airbyte, launch: {kind: docker, image: i, container_kwargs: {mem_limit: 1g}}}",
            "line 1, connector.launch.container_kwargs: mem_limit is set by memory, next to container_kwargs",
        ),
        (
            "connector: {protocol: airbyte, launch: {kind: docker, image: i, memory: 1g}, limits: {max_memory: 1 GiB}}",
            "line 1, connector: give launch.memory or limits.max_memory, not both: they are one limit",
        ),
        (
            "connector: {protocol: airbyte, launch: {kind: docker, image: i, container_kwargs: {tty: true}}}",
            "line 1, connector.launch.container_kwargs: tty cannot be set: connectors run with a value of ours",
        ),
        (
            "connector: {protocol: airbyte, launch: {kind: local, command: x}, env_vars: [A=, '=b', C]}",
            "line 1, connector.env_vars[1]: must be NAME, or NAME=VALUE",
        ),
        (
            "sandbox: true\nconnector: {protocol: airbyte, launch: {kind: docker, image: i}}",
            "sandbox is for programs of this machine; an image or a component is confined without it",
        ),
        (
            "connector: {protocol: airbyte, launch: {kind: local, command: x, network: none}}",
            "connector.launch.network is for a program in a sandbox; add `sandbox: true`",
        ),
        (
            "connector: {protocol: airbyte, launch: {kind: manifest, path: m, version: '>=7'}}",
            'line 1, connector.launch.version: must be one version of airbyte-cdk, such as "7.39.1"',
        ),
        (
            "connector: {protocol: airbyte, launch: {kind: pypi, package: p, executable: e, python: 3.10}}",
            "line 1, connector.launch.python: must be text; found a number; put it in quotes",
        ),
        (
            LOCAL + "transforms: [{validate: [{assert_not_nul: id}]}]",
            'line 2, transforms[0].validate[0].assert_not_nul: is not a known key; did you mean "assert_not_null"?',
        ),
    ],
)  # fmt: skip
def test_a_fault_is_reported_in_plain_words(tmp_path: Path, text: str, found: str) -> None:
    assert refused(tmp_path, text) == found


def test_a_name_that_cannot_come_from_the_file_is_explained(tmp_path: Path) -> None:
    assert refused(tmp_path, LOCAL, "my-shop.yaml") == (
        'name: must be of small letters, digits and "_" (by default it is that of the file or folder); found "my-shop"'
    )


def test_a_missing_file_and_a_folder_have_different_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        Connection.from_file(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        Connection.from_file(tmp_path)


def test_the_error_of_a_relative_path_has_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="there is no such file") as error:
        Connection.from_file("connections/none.yaml")
    assert error.value.remedy == f"Its path starts at the working directory, {Path.cwd()}."


@pytest.mark.parametrize(
    "text",
    ["config: hunter2", "config: {p: *hunter2}", "config: {p: !hunter2 x}", "config: {p: !hunter2!x y}", "hunter2",
     "config: {p: 'hunter2}", 'config: {p: "hunter2\\z"}', "config: {p: hunter2, p: hunter2}", "config: {p: `hunter2}",
     "config: {p: &hunter2 a, q: hunter2: b}"],
)  # fmt: skip
def test_no_fault_shows_what_may_be_a_secret(tmp_path: Path, text: str) -> None:
    assert "hunter2" not in refused(tmp_path, LOCAL + text)


def test_bytes_that_are_no_text_are_refused_without_being_shown(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_bytes(b"config: {p: hunter2\xff}")
    with pytest.raises(ConfigError, match=r"is not UTF-8 text \(byte 19\)") as error:
        Connection.from_file(tmp_path / "shop.yaml")
    assert error.value.__cause__ is None


@given(st.text(alphabet=st.sampled_from("ab:{}[]\"'\n -*&!#|>%@`?,<~0.\\$")))
def test_any_text_is_a_connection_or_a_config_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_text(LOCAL + text)
    try:
        assert Connection.from_file(file).name == "any"
    except ConfigError as error:
        assert "Input should" not in str(error)


@pytest.mark.parametrize(
    ("size", "count"),
    [
        ("128 MiB", 128 * 1024**2),
        ("1.5gib", 3 * 1024**3 // 2),
        ("10 MB", 10**7),
        ("512", 512),
        (512, 512),
        ("64k", 64000),
    ],
)
def test_sizes_are_written_as_people_write_them(size: object, count: int) -> None:
    data = {"name": "shop", "connector": CONNECTOR, "load": {"max_bytes": size}}
    assert Connection.model_validate(data).load.max_bytes == count


def test_a_date_from_another_yaml_reader_is_refused_before_json_cannot_hold_it() -> None:
    data = {"name": "shop", "connector": CONNECTOR, "config": {"since": [datetime.date(2024, 1, 1)]}}
    with pytest.raises(ValidationError, match=r"since\[0\] is a date: put it in quotes"):
        Connection.model_validate(data)


def test_every_key_is_in_the_table_of_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "connections.md").read_text()
    rows = page.partition("\n## All keys\n")[2].partition("\n## ")[0]
    assert [key for key in {**Connection.model_fields, **Connector.model_fields} if f"`{key}`" not in rows] == []
