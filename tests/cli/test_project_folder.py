"""Commands in a subfolder work on the project's home. The name of a connection stands for its file."""

import json
from pathlib import Path

import pytest

from dagster_airbyte_proto.cli.call import Call
from dagster_airbyte_proto.project_folder import home_folder, project_folder
from tests.cli.conftest import USERS, Place


def test_a_command_in_a_subfolder_uses_the_home_of_its_project(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    file = place.connect(USERS)
    assert place.run("sync", file).code == 0
    below = place.folder / "models" / "staging"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    shown = place.run("state", "list")
    assert "users" in shown.out
    assert shown.err.startswith(f"home folder: {place.folder / '.airbyte-proto'}\n")
    assert place.json("state", "list")["connections"]
    assert list(below.iterdir()) == []


def test_a_home_that_is_made_from_a_subfolder_is_called_new_and_one_that_is_named_is_not_named_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = place.folder / "models"
    below.mkdir()
    monkeypatch.chdir(below)
    home = place.folder / ".airbyte-proto"
    assert place.run("state", "list").err == f"home folder: {home} (new)\n"
    assert place.run("--home", str(home), "state", "list").err == ""


def test_status_makes_no_home(place: Place) -> None:
    home = place.folder / ".airbyte-proto"
    shown = place.run("status", place.connect(USERS))
    assert "never" in shown.out and shown.err == f"home folder: {home} (not there)\n"
    assert place.json("status") == {"connections": []}
    assert not home.exists()
    refused = place.json("--home", "airbyte-proto.yaml", "status", code=2)["error"]
    assert "airbyte-proto.yaml cannot be created" in refused["message"]


def test_a_command_that_makes_a_home_names_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = place.folder / "elsewhere"
    elsewhere.mkdir()
    (place.folder / "airbyte-proto.yaml").unlink()
    monkeypatch.chdir(elsewhere)
    line = f"home folder: {elsewhere / '.airbyte-proto'} (new)\n"
    assert place.run("state", "list").err.startswith(line)
    assert "home folder" not in place.run("state", "list").err
    monkeypatch.setenv("AIRBYTE_PROTO_HOME", str(place.folder / "named"))
    assert f"home folder: {place.folder / 'named'} (new)" in place.run("state", "list", "--json").err


def test_dagster_and_calls_from_python_find_the_same_home(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    home, below = place.folder / ".airbyte-proto", place.folder / "definitions"
    home.mkdir(exist_ok=True)
    below.mkdir()
    monkeypatch.chdir(below)
    assert home_folder() == home
    assert home_folder("other") == Path("other")
    monkeypatch.setenv("AIRBYTE_PROTO_HOME", "/elsewhere")
    assert home_folder("") == Path("/elsewhere")


def test_a_home_folder_may_be_below_that_of_the_user(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(place.folder / "ada"))
    place.json("--home", "~/syncs", "state", "list")
    assert (place.folder / "ada" / "syncs" / "state.db").is_file()
    monkeypatch.setenv("AIRBYTE_PROTO_HOME", "~/syncs")
    assert home_folder() == place.folder / "ada" / "syncs"


def test_folders_that_cannot_be_looked_into_are_no_projects() -> None:
    beyond = Path("/") / ("x" * 300)  # too long for a name, which is refused as a lack of rights is, also for root
    assert project_folder(beyond) == beyond


def test_a_name_that_nobody_knows_makes_no_home_folder(place: Place) -> None:
    for words in (("state", "show", "shop"), ("loads", "list", "shop"), ("recover", "shop")):
        failed = place.run(*words)
        assert (failed.code, "Known here: none. Is --home right?" in failed.err) == (2, True)
    assert not (place.folder / ".airbyte-proto").exists()


def test_a_connection_that_never_synced_is_told_from_one_that_is_not_there(place: Place) -> None:
    place.connect(USERS)
    assert "and nothing of shop.yaml has been synced yet" in place.run("loads", "list", "shop").err
    assert "and there is no such file" in place.run("loads", "list", "shpo").err


def test_the_name_of_a_connection_finds_its_file(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors print commands with the name: `airbyte-proto sync shop --refresh`."""
    written = json.loads((place.folder / place.connect(USERS, "orders")).read_text())
    (place.folder / "connections").mkdir()
    other = place.folder / "connections" / "other.yaml"
    other.write_text(json.dumps({**written, "name": "shop"}))
    assert [str(Call().open(name).origin) for name in ("orders", "shop")] == ["orders.yaml", "connections/other.yaml"]
    missing = place.run("check", "other")
    assert (missing.code, "looking up connection other: there is no such file" in missing.err) == (2, True), missing.err
    below = place.folder / "models"
    below.mkdir()
    monkeypatch.chdir(below)
    assert Call().open("shop").origin == other
    (place.folder / "shop.yaml").write_text(json.dumps(written))
    doubled = place.run("check", "shop")
    assert (doubled.code, f"{place.folder / 'shop.yaml'}, {other} have that name" in doubled.err) == (2, True)


def test_a_working_directory_that_is_gone_is_no_bug(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = place.folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    failed = place.run("status")
    assert (failed.code, failed.err.count("\n")) == (2, 2), failed.err
    assert "the working directory cannot be read: No such file or directory" in failed.err


def test_settings_above_make_the_project_before_there_is_a_home(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    file = place.folder / place.connect(USERS)
    below = place.folder / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    assert place.run("sync", str(file)).code == 0
    assert (place.folder / ".airbyte-proto" / ".gitignore").read_text() == "*\n"
    assert list(below.iterdir()) == []
