"""The commands, flags, answers and exit codes that people and programs rely on."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto import errors, points
from dagster_airbyte_proto.testing import fake_source
from tests.cli.conftest import SECRET, USERS, Place

SURFACE = ["spec", "check", "discover", "sync", "query", "state", "loads", "recover", "record", "version"]
STATE = ["list", "show", "set", "reset", "history", "rollback"]


def test_help_lists_every_command(place: Place) -> None:
    shown = place.run("--help").out
    assert set(SURFACE) <= set(re.findall(r"^  ([a-z]+) ", shown, re.MULTILINE))
    assert set(STATE) <= set(re.findall(r"^  ([a-z]+) ", place.run("state", "--help").out, re.MULTILINE))


@pytest.mark.parametrize("words", [["--json", "--help"], ["state", "--json", "show", "--help"]])
def test_help_is_help_whatever_else_is_asked_for(place: Place, words: list[str]) -> None:
    shown = place.run(*words)
    assert shown.code == 0
    assert shown.out.startswith("Usage: ") and "null" not in shown.out.splitlines()


@pytest.mark.parametrize(
    ("words", "slow"),
    [
        ("--help", "pyspark, pyarrow, dagster, numpy, sqlalchemy, pydantic, dagster_airbyte_proto.protocols.lookup"),
        ("state list", "pyspark, pyarrow, dagster, numpy"),
        ("sync shop.yaml", "pyspark, pandas, dagster, duckdb, datafusion, wasmtime, docker"),
    ],
)
def test_what_is_slow_to_import_and_not_needed_is_not_imported(place: Place, words: str, slow: str) -> None:
    place.connect({**USERS, "streams": {"users": {"records": 0}}})
    program = (
        "import sys; from dagster_airbyte_proto.cli.main import main; code = main(sys.argv[1:]);"
        f"sys.exit(code or str([m for m in {slow.split(', ')!r} if m in sys.modules] or '') or 0)"
    )
    ended = subprocess.run([sys.executable, "-c", program, *words.split()], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_options_stand_before_the_command_or_behind_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.run("--home", "before", "state", "list")
    place.run("state", "list", "--home", "behind")
    monkeypatch.setenv("AIRBYTE_PROTO_HOME", "named")
    place.run("state", "list")
    place.run("--home", "written", "state", "list")
    homes = {path.parent.name for path in Path().glob("*/state.db")}
    assert homes == {"before", "behind", "named", "written"}
    assert json.loads(place.run("--json", "state", "list").out) == {"connections": []}


def test_spec_shows_fields_and_which_are_secret(place: Place) -> None:
    file = place.connect(USERS)
    assert "password" in place.run("spec", file).out
    spec = place.json("spec", file)["spec"]
    assert spec["connectionSpecification"]["properties"]["password"]["airbyte_secret"]


def test_check_tells_the_verdict_in_its_exit_code(place: Place) -> None:
    assert place.json("check", place.connect(USERS))["status"] == "succeeded"
    refused = json.dumps(
        {"type": "CONNECTION_STATUS", "connectionStatus": {"status": "FAILED", "message": f"no {SECRET}"}}
    )
    file = place.connect({**USERS, "answers": {"check": {"lines": [refused]}}}, "refused")
    assert place.json("check", file, code=1) == {
        "connection": "refused",
        "status": "failed",
        "message": "no ***",
        "streams_checked": False,
        "stream_errors": [],
    }


def test_check_holds_the_streams_against_the_saved_catalog(place: Place) -> None:
    streams = {
        "users": {"primary_key": ["idd"]},
        "userz": {},
        "orders": {"cursor": "updated", "read": "incremental"},
        "visits": {"select": ["pages"], "write": "overwrite"},
        "logs": {"read": "incremental"},
        "carts": {"rename_columns": {"naem": "title"}},
        "items": {},
    }
    names = [name for name in streams if name != "userz"]
    offered = {name: {"records": 1, "incremental": name != "logs"} for name in names}
    file = place.connect({"streams": offered}, streams=streams)
    unchecked = place.run("check", file)
    assert unchecked.code == 0
    assert "warning: the names and options of its streams are not checked, for no catalog is saved" in unchecked.out
    assert "run `airbyte-proto discover shop.yaml --save`" in unchecked.out
    assert place.run("discover", place.connect({"streams": offered}), "--save").code == 0
    result = place.run("check", place.connect({"streams": offered}, streams=streams))
    assert (result.code, "shop: check failed" in result.out) == (2, True)
    checked = place.json("check", file, code=2)
    assert checked["streams_checked"]
    found = {error["stream"] or "userz": f"{error['found']}. {error['remedy']}" for error in checked["stream_errors"]}
    assert set(found) == {*names[:-1], "userz"}
    assert found["userz"] == "there is no stream 'userz'. Did you mean 'users'?"
    assert found["users"] == "the schema has no field idd. The nearest field is id."
    assert "no field updated. The nearest field is updated_at." in found["orders"]
    assert "no field pages" in found["visits"] and "no field naem. The nearest field is name." in found["carts"]
    assert "read: incremental" in found["logs"]
    for message in found.values():
        assert message.partition(". ")[2] in result.out


def test_check_passes_streams_that_a_sync_takes(place: Place) -> None:
    streams = {"users": {"primary_key": ["id"], "select": ["id", "name", "updated_at"]}, "*": {"write": "append"}}
    file = place.connect({"streams": {"users": {"records": 1}, "orders": {"records": 1}}}, streams=streams)
    assert place.run("discover", file, "--save").code == 0
    checked = place.json("check", file)
    assert (checked["status"], checked["streams_checked"], checked["stream_errors"]) == ("succeeded", True, [])
    assert place.run("sync", file).code == 0


def test_a_path_in_a_config_starts_where_the_connector_does(place: Place) -> None:
    launch = {"kind": "local", "command": fake_source.command(), "working_folder": "../data"}
    written = {"connector": {"protocol": "airbyte", "launch": launch}, "config": {"scenario": "users.json"}}
    for folder in ("connections", "data"):
        (place.folder / folder).mkdir()
    (place.folder / "connections" / "shop.yaml").write_text(json.dumps(written))
    (place.folder / "data" / "users.json").write_text(json.dumps(USERS))
    assert list(place.json("discover", "connections/shop.yaml")["streams"]) == ["users"]


def test_discover_saves_the_catalog_and_shows_what_changed(place: Place) -> None:
    first = place.json("discover", place.connect(USERS), "--save")
    assert first["streams"]["users"]["primary_key"] == [["id"]]
    assert Path(first["saved"]).name == "shop.json"
    assert first["changes"] == ["users: new stream (4 columns)"]
    assert place.json("discover", "shop.yaml", "--save")["changes"] == []
    place.connect({"streams": {"users": {"records": 1, "pad": 3}, "orders": {"records": 1}}})
    changes = place.json("discover", "shop.yaml", "--save")["changes"]
    assert [change.split(" (")[0] for change in changes] == ["orders: new stream", "users: column pad is new"]


def test_a_catalog_from_which_no_assets_can_be_made_is_not_saved(place: Place) -> None:
    offered = {name: {"records": 1} for name in ("users", "orders", "carts")}
    saved = Path(place.json("discover", place.connect({"streams": offered}), "--save")["saved"])
    before = saved.read_bytes()
    wrong: dict[str, Any] = {"userz": {}, "orders": {"write": "append_dedup", "primary_key": ["nr"]}, "carts": {}}
    file = place.connect({"streams": {**offered, "more": {"records": 1}}}, streams=wrong)
    shown = place.run("discover", file, "--save")
    assert (shown.code, saved.read_bytes()) == (2, before)
    assert "more: new stream" in shown.out and "not saved, for no assets could be made from it" in shown.out
    found = place.json("discover", file, "--save", code=2)
    assert (found["saved"], list(found["streams"])) == (None, ["users", "orders", "carts", "more"])
    assert [error["found"] for error in found["stream_errors"]] == [
        "there is no stream 'userz'",
        "the schema has no field nr",
    ]
    wrong |= {"users": wrong.pop("userz"), "orders": {}}
    assert place.json("discover", place.connect({"streams": offered}, streams=wrong), "--save")["saved"]


def test_a_saved_catalog_that_cannot_be_read_is_replaced(place: Place) -> None:
    file = place.connect(USERS)
    saved = Path(place.json("discover", file, "--save")["saved"])
    before = saved.read_bytes()
    saved.write_text('{"streams": 5}')
    assert "the catalog that was saved before cannot be used" in place.run("discover", file, "--save").err
    assert saved.read_bytes() == before


def test_an_unsaved_discover_leaves_the_saved_catalog_alone(place: Place) -> None:
    file = place.connect(USERS)
    assert "saved" not in place.json("discover", file)
    assert not list(Path(".airbyte-proto/catalogs").glob("*.json"))


def test_a_spec_of_odd_words_is_shown(place: Place) -> None:
    login = {"type": ["object", 5], "required": True, "properties": {"token": {"type": 5}}, "oneOf": ["x", {}]}
    schema = {"type": "object", "required": True, "properties": {"login": login, "key": {"oneOf": {}}}}
    answer = json.dumps({"type": "SPEC", "spec": {"connectionSpecification": schema}})
    scenario = place.folder / "scenario.json"
    scenario.write_text(json.dumps({"answers": {"spec": {"lines": [answer]}}}))
    launch = {"kind": "local", "command": fake_source.command(scenario)}
    shown = place.run("spec", place.connect(USERS, connector={"protocol": "airbyte", "launch": launch}))
    assert (shown.code, "login.token" in shown.out) == (0, True), shown.err


def test_version_is_shown_also_with_a_store_that_nobody_can_open(place: Place) -> None:
    settings = json.loads((place.folder / "airbyte-proto.yaml").read_text())
    (place.folder / "airbyte-proto.yaml").write_text(json.dumps({**settings, "state_url": "postgresql://host:port/db"}))
    assert place.json("version")["state_store_schema"] is None


def test_version_reads_the_escapes_in_the_url_of_a_store(place: Place) -> None:
    settings = json.loads((place.folder / "airbyte-proto.yaml").read_text())
    url = f"sqlite:///{place.folder}/of%20the%20branch%2525.db"  # SQLAlchemy 2.0 takes the escapes for letters.
    (place.folder / "airbyte-proto.yaml").write_text(json.dumps({**settings, "state_url": url}))
    place.run("state", "list")
    assert (place.folder / "of the branch%25.db").is_file()
    assert place.json("version")["state_store_schema"] == 16


def test_version_knows_the_store_only_once_it_stands(place: Place) -> None:
    assert place.json("version")["state_store_schema"] is None
    place.run("state", "list")
    versions = place.json("version")
    assert versions["state_store_schema"] == 16
    assert {"airbyte_proto", "python", "pyspark", "iceberg_runtime", "java", "node", "pyarrow", "dagster"} <= set(
        versions
    )


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["check", "nowhere.yaml"], "there is no such file"),
        (["state", "show", "nowhere"], "the state store does not know it"),
        (["state", "list", "--settings", "nowhere.yaml"], "there is no such file"),
        (["loads", "show", "nothing"], "there is no load 'nothing'"),
        (["query", "SELECT 1"], "are not read by Spark"),
        (["spec", "other.yaml"], 'did you mean "connector"?'),
        (["sync", "shop.yaml", "--streams", "user"], "there is no stream 'user'"),
        (["state", "set", "shop.yaml", "users", "{"], "it is not JSON"),
        (["state", "set", "shop.yaml", "users", "@nowhere"], "No such file"),
        (["state", "show", "shop.yaml", "users"], "there is no state of a stream 'users'"),
        (["check", "lost.yaml"], "no-such-program"),
        (["check", "shop.yaml", "--home", "/proc/nowhere"], "cannot be created"),
        (["sync", "wrong.yaml"], "count"),
        (["state", "show", "x" * 300], "the state store does not know it"),
        (["connectors", "search", "x", "--registry", "~nobody-here/all.json"], "the home of its user is not known"),
    ],
)
def test_what_the_user_got_wrong_is_reported_and_exits_2(place: Place, words: list[str], found: str) -> None:
    place.connect(USERS)
    Path("other.yaml").write_text("conector: {}\n")
    Path("lost.yaml").write_text(
        "connector: {protocol: airbyte, launch: {kind: local, command: [no-such-program]}}\nconfig: {}\n"
    )
    place.connect(USERS, "wrong", config={"scenario": dict(USERS), "count": 0})
    result = place.run(*words)
    assert result.code == 2
    assert not result.out
    said = [line for line in result.err.splitlines() if not line.startswith("home folder: ")]
    assert said[0].startswith("error: ") and found in result.err
    assert "Traceback" not in result.err
    error = place.json(*words, code=2)["error"]
    assert error["kind"] == "ConfigError"
    assert found in error["message"]
    assert issubclass(getattr(errors, error["kind"]), errors.ProtoError)


@pytest.mark.parametrize(
    "words", [["bogus"], ["sync"], ["sync", "shop.yaml", "--streams", ","], ["state", "rollback", "c"]]
)
def test_words_that_are_no_command_exit_2_in_both_tongues(place: Place, words: list[str]) -> None:
    place.connect(USERS)
    result = place.run(*words)
    assert (result.code, result.out) == (2, "")
    assert "Error: " in result.err
    assert place.json(*words, code=2)["error"]["kind"] == "UsageError"


def test_a_connector_that_breaks_is_reported_without_a_stack_trace(place: Place) -> None:
    file = place.connect({**USERS, "answers": {"discover": {"lines": ["no message"], "exit_code": 3}}})
    result = place.run("discover", file)
    assert result.code == 1
    assert "exited with code 3" in result.err
    assert "Traceback" not in result.err
    value = place.json("discover", file, code=1)
    assert (value["connection"], value["status"], value["error"]["kind"]) == ("shop", "failed", "ConnectorError")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('{"type":"CATALOG","catalog":{"streams":"users"}}', "its answer cannot be read"),
        ("users, orders", "it ended without an answer"),
    ],
)
@pytest.mark.parametrize("command", ["discover", "sync"])
def test_a_catalog_that_cannot_be_read_is_reported_and_exits_1(
    place: Place, command: str, line: str, found: str
) -> None:
    result = place.run(command, place.connect({**USERS, "answers": {"discover": {"lines": [line]}}}))
    assert (result.code, result.out) == (1, "")
    assert f"error: asking the connector for its catalog: {found}" in result.err
    assert "Traceback" not in result.err


def test_a_kept_catalog_that_is_broken_is_asked_for_anew(place: Place) -> None:
    file = place.connect(USERS)
    place.json("sync", file)
    (kept,) = Path(".airbyte-proto/catalogs/cached").glob("catalog-shop-*.json")
    kept.write_text('{"identity": ')
    result = place.run("sync", file)
    assert (result.code, "Traceback" in result.err) == (0, False)
    assert f"{kept} cannot be used" in result.err.replace(f"{Path.cwd()}/", "")
    assert place.run("sync", file).err.count("cannot be used") == 0


@pytest.mark.parametrize("command", ["discover", "sync"])
def test_a_secret_that_a_connector_blurts_out_is_masked_in_the_error(place: Place, command: str) -> None:
    error = {"message": f"no login with {SECRET}", "failure_type": "config_error"}
    line = json.dumps({"type": "TRACE", "trace": {"type": "ERROR", "emitted_at": 1.0, "error": error}})
    result = place.run(command, place.connect({**USERS, "answers": {"discover": {"lines": [line]}}}), "--json")
    assert result.code == 1
    assert "no login with ***" in result.json["error"]["message"]
    assert SECRET not in result.out + result.err


def test_a_bug_shows_its_stack_trace_and_asks_for_a_report(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "_hook", {}.__getitem__)  # raises KeyError at the first point
    result = place.run("sync", place.connect(USERS), "--json")
    assert result.code == 1
    assert "Traceback" in result.err and "airbyte-proto version" in result.err
    assert result.json["error"]["kind"] == "InternalError"


def test_every_answer_is_one_json_document_whatever_the_connector_prints(place: Place, tmp_path: Path) -> None:
    noise = {"lines": ["chatter", '{"type":"LOG","log":{"level":"WARN","message":"careful"}}'], "stderr": ["loud"]}
    file = place.connect({**USERS, **noise})
    for words in (
        ["spec", file],
        ["check", file],
        ["discover", file, "--save"],
        ["sync", file],
        ["record", file, str(tmp_path / "kept")],
        ["state", "list"],
        ["state", "show", "shop"],
        ["state", "set", "shop", "users", '{"next": 3}'],
        ["state", "history", "shop"],
        ["state", "rollback", "shop", "--to", "1"],
        ["state", "reset", "shop"],
        ["loads", "list", "shop"],
        ["recover", "shop"],
        ["version"],
    ):
        result = place.run(*words, "--json")
        assert result.code == 0, result.err
        assert isinstance(result.json, dict), words
        assert result.out.count("\n") == 1, words
        assert SECRET not in result.out + result.err


def test_a_recording_stands_in_for_its_connector(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    kept = place.json("record", place.connect(USERS), str(folder))
    assert (kept["status"], kept["streams"], kept["check"]) == ("complete", ["users"], True)
    assert not any(SECRET in path.read_text() for path in folder.rglob("*") if path.is_file())
    launch = {"kind": "replay", "recording": str(folder)}
    file = place.connect({}, "again", connector={"protocol": "airbyte", "launch": launch})
    assert place.json("check", file)["status"] == "succeeded"
    assert place.json("sync", file)["streams"]["users"]["committed"] == 25


def test_a_token_that_rotates_while_it_is_recorded_is_masked_too(place: Place, tmp_path: Path) -> None:
    scenario = {
        "lines": [json.dumps({"type": "LOG", "log": {"level": "INFO", "message": "got tok-en-2"}})],
        "new_config": {"scenario": {}, "password": "tok-en-2"},
        "streams": {"users": {"records": 2}},
    }
    kept = place.json("record", place.connect(scenario), str(tmp_path / "kept"))
    files = {path.name: path.read_text() for path in (tmp_path / "kept").rglob("*") if path.is_file()}
    assert kept["status"] == "complete"
    # The scenario is a part of the fake source's config.
    assert {name for name, text in files.items() if "got ***" in text} == {"read-1.stdout.jsonl", "config.json"}
    assert {name for name, text in files.items() if "tok-en-2" in text} == set()
    assert not [name for name in files if name.endswith((".masked", ".part"))]


def test_a_config_that_was_written_back_is_listed_without_its_values_and_dropped(place: Place) -> None:
    later = place.folder / "later.json"
    later.write_text(json.dumps(USERS))
    file = place.connect({**USERS, "new_config": {"scenario": str(later), "password": "renewed-1"}})
    place.json("sync", file)
    [change] = place.json("config", "history", "shop")["history"]
    assert (change["version"], change["who"], change["keys"]) == (1, "connector", ["password", "scenario"])
    assert place.json("config", "reset", "shop")["dropped"] is True
    shown = place.run("config", "history", "shop")
    assert "(dropped)" in shown.out and "renewed-1" not in shown.out
    assert place.json("config", "reset", "shop")["dropped"] is False


def test_an_answer_survives_a_reader_that_has_seen_enough(place: Place) -> None:
    program = f"{sys.executable} -m dagster_airbyte_proto version | true; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_push_of_a_connection_without_one_names_the_command_that_it_needs(place: Place) -> None:
    assert place.run("push", "rejected", place.connect(USERS)).code == 2
    failed = place.run("push", "shop.yaml")
    assert failed.code == 2
    assert "It is a sync into tables: run `airbyte-proto sync shop.yaml`." in failed.err
