"""`envs list` and `envs prune`, with a package that is installed from a wheel of the fake source."""

import os
import zipfile
from pathlib import Path

import pytest

from dagster_airbyte_proto.testing import fake_source
from tests.cli.conftest import Place
from tests.support.wasm import guests

_LAUNCH = {"kind": "pypi", "package": "source-fake==1.0", "working_folder": "."}


@pytest.fixture
def shop(place: Place, monkeypatch: pytest.MonkeyPatch) -> str:
    wheels = place.folder / "wheels"
    wheels.mkdir()
    about = "source_fake-1.0.dist-info"
    with zipfile.ZipFile(wheels / "source_fake-1.0-py3-none-any.whl", "w") as wheel:
        code = Path(fake_source.__file__).read_text()
        wheel.writestr("source_fake.py", f"{code}\n\ndef start() -> None:\n    run(main)\n")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: source-fake\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/entry_points.txt", "[console_scripts]\nsource-fake = source_fake:start\n")
        wheel.writestr(f"{about}/RECORD", "")
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    monkeypatch.setenv("UV_OFFLINE", "1")
    scenario = {"streams": {"users": {"records": 25}}, "failure": {"kind": "hang", "after": 5, "once": "hung"}}
    return place.connect(scenario, connector={"protocol": "airbyte", "launch": _LAUNCH})


def test_a_package_that_a_running_sync_uses_stays_and_goes_afterwards(place: Place, shop: str) -> None:
    running = place.start("sync", shop, AIRBYTE_PROTO_HOME=".airbyte-proto")
    while not (place.folder / "hung").exists():
        assert running.process.poll() is None
    [listed] = place.json("envs", "list")["environments"]
    assert (listed["package"], listed["connections"], listed["in_use"]) == ("source-fake==1.0", ["shop"], True)
    assert place.json("envs", "prune", "--all")["removed"] == []
    assert "is in use, and stays" in place.run("envs", "prune", "source-fake").out
    running.process.terminate()
    running.end()
    [listed] = place.json("envs", "list")["environments"]
    assert listed["in_use"] is False and listed["size_bytes"] > 0

    assert place.json("envs", "prune")["removed"] == []
    would_go = place.json("envs", "prune", "--all", "--dry-run")
    assert [each["package"] for each in would_go["removed"]] == ["source-fake==1.0"]
    assert "source-fake==1.0" in place.run("envs", "list").out
    shown = place.run("envs", "prune", "--all")
    assert shown.code == 0 and "1 environment removed" in shown.out
    listed = place.json("envs", "list")
    assert (listed["environments"], listed["size_bytes"]) == ([], 0)
    assert place.json("sync", shop)["streams"]["users"]["committed"] + 5 >= 25


def test_only_what_was_not_used_for_so_long_goes(place: Place, shop: str) -> None:
    assert place.run("spec", shop).code == 0
    [listed] = place.json("envs", "list")["environments"]
    users = place.folder / ".airbyte-proto" / "venvs" / f"{listed['name']}.users"
    long_ago = users.stat().st_mtime - 31 * 86400
    os.utime(users, (long_ago, long_ago))
    assert place.json("envs", "prune", "--unused-days", "32")["removed"] == []
    assert place.json("envs", "prune")["removed"][0]["name"] == listed["name"]


def test_a_name_that_is_no_environment_is_refused(place: Place) -> None:
    error = place.json("envs", "prune", "nothing", code=2)["error"]
    assert "no environment or package is called nothing" in error["message"]


def test_compiled_components_go_with_the_packages(place: Place) -> None:
    (place.folder / "source.wasm").write_bytes(guests.built().read_bytes())
    connector = {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": "source.wasm"}}
    file = place.connect({}, connector=connector, config={"catalog": {"streams": []}})
    assert place.run("check", file).code == 0
    kept = place.json("envs", "list")["components"]
    assert kept["count"] == 1 and kept["size_bytes"] > 10_000
    # One that was used just now may be starting.
    assert place.json("envs", "prune", "--all")["components"]["count"] == 0
    folder = place.folder / ".airbyte-proto" / "venvs" / "components"
    for each in folder.iterdir():
        os.utime(each, (1.0, 1.0))
    assert place.json("envs", "prune", "--dry-run")["components"] == kept
    assert "1 component removed" in place.run("envs", "prune").out
    assert list(folder.iterdir()) == []
    assert place.run("check", file).code == 0
