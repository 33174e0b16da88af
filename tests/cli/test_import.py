"""`import`: connection files from a Meltano or a Syncmaven project."""

import json
import shlex
from contextlib import closing

import pytest
import yaml

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.connection.launch import PypiLaunch
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.testing import fake_tap
from tests.cli.conftest import Place

_PROJECT = """
plugins:
  extractors:
  - name: tap-shop
    pip_url: tap-shop~=1.0
    config: {host: $SHOP_HOST, password: hunter2, start: 2026-01-01}
    select: [users.*, '!users.email']
  - name: tap-files
    executable: ./tap.sh
    config: {path: "${MELTANO_PROJECT_ROOT}/data"}
  loaders: [{name: target-jsonl}]
"""


def _project(place: Place) -> None:
    root = place.folder / "project"
    inside = root / ".meltano/extractors/tap-shop/venv/lib/python3.11/site-packages/tap_shop-1.2.3.dist-info"
    inside.mkdir(parents=True)
    (inside / "METADATA").write_text("Metadata-Version: 2.1\nName: tap-shop\nVersion: 1.2.3\n")
    (root / "meltano.yml").write_text(_PROJECT)
    (root / ".env").write_text("TAP_SHOP_PAGE=7\n")
    (root / "plugins/extractors").mkdir(parents=True)
    settings = [{"name": "page", "kind": "integer"}, {"name": "timeout", "value": 1.5}]
    (root / "plugins/extractors/tap-shop.lock").write_text(json.dumps({"name": "tap-shop", "settings": settings}))


def test_each_tap_becomes_a_connection_that_is_pinned_to_what_meltano_has_installed(place: Place) -> None:
    _project(place)
    result = place.json("import", "project/meltano.yml", "--into", "connections")
    assert result == {
        "connections": [
            {
                "tap": "tap-shop",
                "connection": "shop",
                "file": "connections/shop.yaml",
                "variables": ["SHOP_HOST", "TAP_SHOP_PASSWORD"],
                "not_carried_over": [],
                "has_state": False,
            },
            {
                "tap": "tap-files",
                "connection": "files",
                "file": "connections/files.yaml",
                "variables": [],
                "not_carried_over": [],
                "has_state": False,
            },
        ],
        "not_carried_over": [
            "loaders target-jsonl: tables are written by airbyte-proto itself; with --loader NAME the records go there"
        ],
        "errors": [],
    }
    shop = Connection.from_file(place.folder / "connections/shop.yaml")
    assert shop.connector.launch.model_dump(exclude_none=True) == {
        "kind": "pypi",
        "package": "tap-shop==1.2.3",
        "executable": "tap-shop",
    }
    assert shop.config == {
        "host": "${env:SHOP_HOST}",
        "password": "${env:TAP_SHOP_PASSWORD}",
        "start": "2026-01-01",
        "page": 7,
        "timeout": 1.5,
    }
    assert shop.streams is not None
    assert shop.streams["users"].exclude == (("email",),)
    assert "hunter2" not in (place.folder / "connections/shop.yaml").read_text()
    files = Connection.from_file(place.folder / "connections/files.yaml")
    assert files.connector.launch.model_dump()["command"] == (str(place.folder / "connections/../project/tap.sh"),)
    assert files.config == {"path": str(place.folder / "project/data")}


def test_a_file_that_is_there_is_not_written_over(place: Place) -> None:
    _project(place)
    (place.folder / "files.yaml").write_text("mine")
    refused = place.run("import", "project/meltano.yml")
    assert (refused.code, "writing files.yaml: the file exists" in refused.err) == (2, True)
    assert not (place.folder / "shop.yaml").exists()
    assert place.run("import", "project/meltano.yml", "--force").code == 0
    assert "tap.sh" in (place.folder / "files.yaml").read_text()


def test_two_taps_whose_connections_would_have_one_name_are_refused_before_anything_is_written(place: Place) -> None:
    _project(place)
    project = place.folder / "project" / "meltano.yml"
    project.write_text(project.read_text().replace("name: tap-files", "name: tap_shop"))
    refused = place.run("import", "project/meltano.yml")
    assert refused.code == 2
    assert refused.err == (
        "error: naming the connections: tap-shop and tap_shop would both be called shop, and share state and tables\n"
        "Give one of them another name in the project, or import one alone: --tap tap_shop.\n"
    )
    assert [path.name for path in place.folder.glob("*.yaml")] == ["airbyte-proto.yaml"]
    assert place.json("import", "project/meltano.yml", "--tap", "tap_shop")["connections"][0]["connection"] == "shop"


def test_what_is_not_there_is_named(place: Place) -> None:
    _project(place)
    for words, found in {
        ("--tap", "tap-x"): "there is no 'tap-x' There are: tap-shop, tap-files.",
        ("--environment", "prod"): "there is no 'prod'",
        ("--state", "tap-x=state.json"): "no tap is named Write TAP=FILE. Taps: tap-shop, tap-files.",
        ("--state", "tap-shop=state.json"): "reading state.json: No such file or directory",
        ("--tap", "tap-files", "--state", "tap-shop=x"): "no tap is named Write TAP=FILE. Taps: tap-files.",
    }.items():
        refused = place.run("import", "project/meltano.yml", *words)
        assert (refused.code, found in " ".join(refused.err.split())) == (2, True), refused.err
    assert place.run("import", "elsewhere.yml").code == 2
    assert [path.name for path in place.folder.glob("*.yaml")] == ["airbyte-proto.yaml"]


def _fake_project(place: Place, records: int) -> None:
    """A tap that offers users and orders, and has already sent its host three users."""
    root = place.folder / "project"
    root.mkdir()
    scenario = {"streams": {name: {"records": records} for name in ("users", "orders")}}
    (root / "scenario.json").write_text(json.dumps(scenario))
    program = root / "tap.sh"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(fake_tap.command(root / "scenario.json"))} "$@"\n')
    program.chmod(0o755)
    tap = {"name": "tap-shop", "executable": "./tap.sh", "select": ["us*.*", "!*.na*"]}
    (root / "meltano.yml").write_text(json.dumps({"plugins": {"extractors": [tap]}}))
    saved = '{"singer_state": {"bookmarks": {"users": {"next": 3}}, "ratio": 0.12345678901234567891}}'
    (root / "state.json").write_text(saved, encoding="utf-16")  # as a shell of Windows writes it


def test_patterns_are_worked_out_by_asking_the_tap_and_its_state_is_taken_over(place: Place) -> None:
    _fake_project(place, records=5)
    result = place.json("import", "project/meltano.yml", "--state", "tap-shop=project/state.json")
    [moved] = result["connections"]
    assert (moved["not_carried_over"], moved["has_state"]) == ([], True)
    assert Connection.from_file(place.folder / "shop.yaml").streams is not None
    assert "users: {exclude: [name]}" in (place.folder / "shop.yaml").read_text()
    with closing(SqlStore(f"sqlite:///{place.folder}/.airbyte-proto/state.db")) as store:
        [kept] = store.states("shop", partition=None)
    assert b"0.12345678901234567891" in kept.state.message
    [state] = place.json("state", "show", "shop.yaml")["states"]
    assert state["state"]["bookmarks"] == {"users": {"next": 3}}
    report = place.json("sync", "shop.yaml")
    assert {name: each["committed"] for name, each in report["streams"].items()} == {"users": 2}


def test_a_tap_whose_config_names_a_file_of_the_project_starts_there(place: Place) -> None:
    _project(place)
    root = place.folder / "project"
    (root / "orders.csv").write_text("id\n1\n")
    tap = {"name": "tap-csv", "pip_url": "tap-csv==1.0", "config": {"files": [{"path": "orders.csv"}], "page": "7"}}
    (root / "meltano.yml").write_text(json.dumps({"plugins": {"extractors": [tap]}}))
    place.json("import", "project/meltano.yml", "--into", "connections")
    launch = Connection.from_file(place.folder / "connections/csv.yaml").connector.launch
    assert isinstance(launch, PypiLaunch) and launch.working_folder is not None
    assert launch.working_folder.resolve() == root.resolve()


def test_a_tap_that_cannot_be_asked_leaves_its_patterns_named(place: Place) -> None:
    _fake_project(place, records=5)
    (place.folder / "project/tap.sh").unlink()
    [moved] = place.json("import", "project/meltano.yml")["connections"]
    assert "select us*.*: it needs the tap's catalog" in moved["not_carried_over"]
    assert any("tap.sh" in left for left in moved["not_carried_over"])


def test_files_of_a_project_that_cannot_be_read_are_named(place: Place) -> None:
    _project(place)
    root = place.folder / "project"
    tap = {"plugins": {"extractors": [{"name": "tap-shop"}]}}
    (root / "meltano.yml").write_text(json.dumps({**tap, "include_paths": ["/etc/*.yml"]}))
    assert "reading include_paths: '/etc/*.yml'" in place.run("import", "project").err
    (root / "meltano.yml").write_text(json.dumps({**tap, "include_paths": "./more.yml"}))
    assert "reading include_paths: in project/meltano.yml it is no list" in place.run("import", "project").err
    (root / "meltano.yml").write_text(json.dumps(tap))
    (root / ".env").write_bytes(b"NAME=\xff\n")
    assert "project/.env: it is not UTF-8 text" in place.run("import", "project").err
    (root / ".env").unlink()
    (root / "plugins/extractors/tap-shop.lock").write_text("[]")
    failed = place.run("import", "project")
    assert (failed.code, "tap-shop.lock: it is no definition of a plugin" in failed.out) == (2, True)


@pytest.mark.parametrize(
    ("tap", "launch"),
    [
        (
            {"pip_url": "tap-shop @ git+https://ann:hunter22@example.com/tap-shop.git"},
            {"kind": "local", "command": ["project/.meltano/extractors/tap-shop/venv/bin/tap-shop"]},
        ),
        ({"pip_url": "tap-shop==${VERSION}", "python": "python3.11"}, {"package": "tap-shop==1.2.3", "python": "3.11"}),
        ({"pip_url": "tap-shop==1.0 'plugin", "python": "/usr/bin/python3.11"}, {"python": "/usr/bin/python3.11"}),
        ({"name": "tap-shop--eu", "inherit_from": "tap-shop"}, {"package": "tap-shop==1.2.3"}),
    ],
)
def test_the_package_is_the_one_that_meltano_runs(place: Place, tap: dict[str, str], launch: dict[str, object]) -> None:
    _project(place)
    taps = [{"name": "tap-shop", "pip_url": "tap-shop~=1.0"}, {"name": "tap-shop", **tap}]
    taps = taps[1:] if tap.get("name") is None else taps
    (place.folder / "project/meltano.yml").write_text(json.dumps({"plugins": {"extractors": taps}}))
    assert "hunter22" not in json.dumps(place.json("import", "project", "--tap", taps[-1]["name"]))
    written = yaml.safe_load((place.folder / f"{taps[-1]['name'][4:].replace('--', '_')}.yaml").read_text())
    assert written["connector"]["launch"].items() >= launch.items()


def test_a_tap_of_which_nothing_is_selected_says_so(place: Place) -> None:
    _fake_project(place, records=5)
    project = place.folder / "project/meltano.yml"
    project.write_text(project.read_text().replace('"us*.*", "!*.na*"', '"!users.*", "!orders.*"'))
    [made] = place.json("import", "project")["connections"]
    assert "select: it selects no stream, so the file is refused until `streams` names one" in made["not_carried_over"]


def test_variables_of_a_pipeline_have_their_values(place: Place) -> None:
    _project(place)
    root = place.folder / "project"
    (root / "plugins/loaders").mkdir()
    settings = [{"name": "default_target_schema", "value": "$MELTANO_EXTRACT__LOAD_SCHEMA"}]
    (root / "plugins/loaders/target-x.lock").write_text(json.dumps({"name": "target-x", "settings": settings}))
    tap = {"name": "tap-x", "load_schema": "raw_$MELTANO_ENVIRONMENT"}
    document = {
        "default_environment": "dev",
        "environments": [{"name": "dev"}],
        "plugins": {
            "extractors": [tap, {"name": "tap-y", "load_schema": "raw_$USER"}],
            "loaders": [{"name": "target-x"}],
        },
    }
    (root / "meltano.yml").write_text(json.dumps(document))
    _, other = place.json("import", "project")["connections"]
    assert yaml.safe_load((place.folder / "x.yaml").read_text())["destination"] == {"namespace": "raw_dev"}
    assert "destination" not in yaml.safe_load((place.folder / "y.yaml").read_text())
    assert any(text.startswith("load_schema raw_$USER: ") for text in other["not_carried_over"])
    [made] = place.json("import", "project", "--tap", "tap-x", "--loader", "target-x", "--force")["connections"]
    assert (made["variables"], made["not_carried_over"]) == ([], [])
    assert yaml.safe_load((place.folder / "x.yaml").read_text())["to"]["config"] == {"default_target_schema": "raw_dev"}


def test_with_a_loader_each_tap_is_relayed_to_it(place: Place) -> None:
    _project(place)
    project = place.folder / "project/meltano.yml"
    loader = """
  - name: target-postgres
    pip_url: meltanolabs-target-postgres==0.8.1
    executable: target-postgres
    config: {host: db, user: $PG_USER, password: open-secret}
  - name: target-jsonl
"""
    project.write_text(_PROJECT.replace(" [{name: target-jsonl}]", loader))
    result = place.json("import", "project/meltano.yml", "--into", "connections", "--loader", "target-postgres")
    [shop, _] = result["connections"]
    assert shop["variables"] == ["SHOP_HOST", "TAP_SHOP_PASSWORD", "PG_USER", "TARGET_POSTGRES_PASSWORD"]
    assert result["not_carried_over"] == []
    written = Connection.from_file(place.folder / "connections/shop.yaml")
    assert written.to is not None
    assert written.to.connector.launch.model_dump(exclude_none=True) == {
        "kind": "pypi",
        "package": "meltanolabs-target-postgres==0.8.1",
        "executable": "target-postgres",
    }
    assert written.to.config == {
        "host": "db",
        "user": "${env:PG_USER}",
        "password": "${env:TARGET_POSTGRES_PASSWORD}",
    }
    assert "open-secret" not in (place.folder / "connections/shop.yaml").read_text()
    wrong = place.run("import", "project/meltano.yml", "--loader", "target-x", "--force")
    assert wrong.code == 2
    assert "target-postgres, target-jsonl" in wrong.err


def _syncmaven_project(place: Place) -> None:
    root = place.folder / "reverse"
    for name, text in {
        "models/users.sql": '{{config "cursor" "updated_at"}}select id, updated_at from users where :cursor is null',
        "connections/crm.yaml": "package: {type: npm, dir: ./crm}\ncredentials: {apiKey: '{{env.CRM_KEY}}'}\n",
        "syncs/contacts.yml": "{model: users, destination: crm, stream: contacts, checkpointEvery: 100}",
        "syncs/rich.yml": "{model: users, destination: crm, stream: rich, enrichments: [{connection: crm}]}",
        "syncs/old.json": '{"id": "leads", "model": "users", "destination": "crm", "disabled": true}',
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_each_sync_of_a_syncmaven_project_becomes_a_push(place: Place) -> None:
    _syncmaven_project(place)
    result = place.json("import", "reverse", "--into", "connections")
    made, rich = result["connections"]
    assert (made["sync"], made["file"], made["variables"]) == ("contacts", "connections/contacts.yaml", ["CRM_KEY"])
    assert result["not_carried_over"] == ["the sync leads, which is disabled"]
    connection = Connection.from_file(place.folder / "connections/contacts.yaml")
    assert connection.push is not None
    assert (connection.push["contacts"].cursor, connection.checkpoint_rows) == ("updated_at", 100)
    launch = connection.connector.launch
    assert launch.kind == "local"
    assert launch.working_folder == place.folder / "connections/../reverse/crm"
    assert any("the columns that the enrichment by crm fills" in text for text in rich["not_carried_over"])
    written = (place.folder / "connections/rich.yaml").read_text()
    assert written.count('working_folder: "../reverse/crm"') == 2  # of the destination, and of the transform
    with pytest.raises(ConfigError, match="name the columns that the connector fills"):
        Connection.from_file(place.folder / "connections/rich.yaml")
    again = place.run("import", "reverse", "--into", "connections")
    assert (again.code, "the file exists" in again.err) == (2, True)
    assert place.run("import", "reverse", "--into", "connections", "--force").code == 0


def test_two_files_of_a_syncmaven_project_with_one_id_are_refused(place: Place) -> None:
    _syncmaven_project(place)
    (place.folder / "reverse/syncs/again.yml").write_text("{id: contacts, model: users, destination: crm}")
    refused = place.run("import", "reverse", "--into", "connections")
    assert (refused.code, "two of its files have the id contacts" in refused.err) == (2, True)


def test_the_id_of_a_file_is_its_name_without_the_ending_alone(place: Place) -> None:
    _syncmaven_project(place)
    (place.folder / "reverse/models/users.v2.sql").write_text("select id from users_v2")
    (place.folder / "reverse/syncs/newer.yml").write_text("{model: users.v2, destination: crm, stream: contacts}")
    made = place.json("import", "reverse", "--into", "connections")["connections"]
    assert "connections/newer.yaml" in [each["file"] for each in made]
    push = Connection.from_file(place.folder / "connections/newer.yaml").push
    assert push is not None and push["contacts"].sql == "select id from users_v2"


def test_the_files_of_a_project_are_never_written_over(place: Place) -> None:
    _syncmaven_project(place)
    sync = place.folder / "reverse/syncs/contacts.yaml"
    sync.with_suffix(".yml").rename(sync)
    pipeline = place.folder / "shop.yaml"
    pipeline.write_text(
        json.dumps({"pipeline": "shop", "source": {"use": "source-a"}, "destination": {"use": "dest-a"}})
    )
    for words, file in ((["reverse", "--into", "reverse/syncs"], sync), (["shop.yaml"], pipeline)):
        before = file.read_text()
        refused = place.run("import", *words, "--force")
        assert (refused.code, "it is the file that is imported" in refused.err) == (2, True), refused.err
        assert file.read_text() == before


def test_options_of_meltano_are_refused_for_a_syncmaven_project(place: Place) -> None:
    _syncmaven_project(place)
    result = place.run("import", "reverse", "--tap", "users")
    assert (result.code, "takes --into and --force only" in result.err) == (2, True)


def test_a_pipeline_of_rapidbyte_becomes_a_relay(place: Place) -> None:
    pipeline = {
        "pipeline": "shop",
        "source": {"use": "source-pg", "config": {"password": "${PG}"}, "streams": [{"name": "users"}]},
        "destination": {"use": "dest-pg", "write_mode": "replace"},
    }
    (place.folder / "pipeline.yml").write_text(json.dumps(pipeline))
    [made] = place.json("import", "pipeline.yml", "--into", "connections")["connections"]
    assert (made["file"], made["variables"]) == ("connections/shop.yaml", ["PG"])
    assert made["components"] == ["connectors/source_pg.wasm", "connectors/dest_pg.wasm"]
    connection = Connection.from_file(place.folder / "connections/shop.yaml")
    assert connection.to is not None and connection.streams is not None
    assert connection.streams["users"].write == "overwrite"
    result = place.run("import", "pipeline.yml", "--tap", "users")
    assert (result.code, "takes --into and --force only" in result.err) == (2, True)


def test_a_file_without_taps_is_doubted(place: Place) -> None:
    (place.folder / "other.yml").write_text("version: 1\n")
    failed = place.run("import", "other.yml")
    assert failed.code == 2
    assert "`plugins` has no extractors" in failed.err and "Is other.yml the right file?" in failed.err


def test_a_folder_that_is_no_project_is_refused(place: Place) -> None:
    (place.folder / "other").mkdir()
    failed = place.run("import", "other")
    assert failed.code == 2
    assert "importing other: the folder is no project" in failed.err and "a folder `syncs`" in failed.err
