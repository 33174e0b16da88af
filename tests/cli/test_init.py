"""`init`: a connection file from a connector's spec."""

import errno
import json
import os
import pty
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.atomic_files import write_new_file
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.sync.connector.new_connection import connection_name, launch_kind, named_connector
from dagster_airbyte_proto.testing import fake_source, fake_tap
from tests.cli.conftest import Place
from tests.support.low_code import MANIFEST

_REGISTRY = ("--registry", str(Path(__file__).parent / "oss_registry.json"))
_SPEC = {
    "title": "Fake shop",
    "type": "object",
    "required": ["scenario", "count", "password"],
    "properties": {
        "scenario": {"type": "object", "default": {"streams": {}}, "order": 0},
        "count": {"type": "integer", "title": "How many", "minimum": 1, "order": 1},
        "password": {"type": "string", "airbyte_secret": True, "order": 2},
    },
}


def _program(place: Place, spec: Any = _SPEC) -> str:
    """A command that starts the fake source, with this spec."""
    answer = {"type": "SPEC", "spec": {"connectionSpecification": spec, "documentationUrl": "https://example.com/x"}}
    scenario = place.folder / "scenario.json"
    scenario.write_text(json.dumps({"answers": {"spec": {"lines": [json.dumps(answer)]}}}))
    return shlex.join(fake_source.command(scenario))


def _tap(place: Place, **scenario: Any) -> str:
    """A program that is called as taps are, with the same spec."""
    output = json.loads(json.dumps(_SPEC).replace("airbyte_secret", "secret"))
    about = {"name": "Fake shop", "capabilities": ["catalog", "state", "discover"], "settings": output}
    answers = {"about": {"lines": [json.dumps(about)]}}
    (place.folder / "scenario.json").write_text(json.dumps({"answers": answers, "streams": {}, **scenario}))
    program = place.folder / "tap-shop"
    command = shlex.join(fake_tap.command(place.folder / "scenario.json"))
    program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    program.chmod(0o755)
    return "./tap-shop"


def test_a_connector_of_the_registry_is_written_with_its_package_and_its_fields(place: Place) -> None:
    output = place.json("init", "source-faker", *_REGISTRY)
    assert output == {
        "connection": "faker",
        "file": "faker.yaml",
        "launch": {"kind": "pypi", "package": "airbyte-source-faker==7.2.1"},
        "push": False,
        "to": None,
        "to_fill_in": ["count"],
        "variables": ["FAKER_API_KEY"],
        "check": None,
    }
    written = (place.folder / "faker.yaml").read_text()
    assert written.startswith("# Sample Data: https://example.com/faker\n")
    assert written.endswith("#streams: [users, products]\n")
    assert Connection.from_file(place.folder / "faker.yaml").config == {
        "count": None,
        "api_key": "${env:FAKER_API_KEY}",
        "seed": -1,
    }
    refused = place.run("sync", "faker.yaml")
    assert (refused.code, "FAKER_API_KEY is not set" in refused.err) == (2, True)


def test_what_is_left_to_do_is_reported_and_the_file_is_not_checked_before(place: Place) -> None:
    output = place.run("init", "Faker", *_REGISTRY)
    assert (output.code, output.err.splitlines()[-1]) == (0, "wrote faker.yaml")
    assert output.out.splitlines() == [
        "to fill in: count",
        "to set in the environment: FAKER_API_KEY",
        "then: airbyte-proto check faker.yaml",
    ]


def test_a_low_code_connector_is_started_as_an_image(place: Place) -> None:
    output = place.json("init", "shop-api", *_REGISTRY, "--no-check")
    assert output["launch"] == {"kind": "docker", "image": "airbyte/source-shop-api:0.3.0"}
    assert "# launch: {kind: manifest, path: manifest.yaml}\n" in (place.folder / "shop_api.yaml").read_text()


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("airbyte-source-faker==7.2.1", "pypi", "faker"),
        ("meltanolabs-tap-postgres==0.10.0", "pypi", "postgres"),
        ("airbyte/source-google-ads:1.2.3", "docker", "google_ads"),
        ("localhost:5000/source-x:1", "docker", "x"),
        ("manifests/shop-api.yaml", "manifest", "shop_api"),
        ("./source-x --fast", "local", "x"),
        ("source-faker", None, "faker"),
        ("destination-postgres", None, "postgres"),
        ("target-jsonl==0.1.4", "pypi", "jsonl"),
        ("sh", None, "sh"),
        ("Google Ads", None, "google_ads"),
        ("sh -c 'exit 1'", "local", "sh"),
    ],
)
def test_a_connector_is_known_by_what_it_is_called(text: str, kind: str | None, name: str) -> None:
    assert (launch_kind(text), connection_name(text)) == (kind, name)


def test_a_package_an_image_or_a_manifest_is_named_in_the_place_of_the_name(place: Place) -> None:
    (place.folder / "shop-api.yml").write_text(MANIFEST)
    output = place.json("init", "shop-api.yml", "--no-check")
    assert (output["file"], output["launch"]) == ("shop_api.yaml", {"kind": "manifest", "path": "shop-api.yml"})


def test_a_program_is_asked_for_its_spec_and_the_file_is_checked(place: Place) -> None:
    spec = {**_SPEC, "required": ["scenario"]}
    output = place.json("init", "My shop", "--command", _program(place, spec), "--file", "connections/shop.yaml")
    assert (output["connection"], output["to_fill_in"], output["check"]["status"]) == ("my_shop", [], "succeeded")
    written = (place.folder / "connections" / "shop.yaml").read_text()
    assert written.startswith("# Fake shop: https://example.com/x\n")
    assert "\nname: my_shop\n" in written
    assert '  #password: "${env:MY_SHOP_PASSWORD}"\n' in written


def test_a_tap_is_asked_for_its_settings_and_the_file_is_checked(place: Place) -> None:
    output = place.json("init", "tap-shop", "--command", _tap(place), "--no-input")
    assert (output["connection"], output["file"], output["to_fill_in"]) == ("shop", "shop.yaml", ["count"])
    written = (place.folder / "shop.yaml").read_text()
    assert written.startswith("# Fake shop\n# Fields that begin")
    assert "\n  # How many (a whole number, required, at least 1)\n  count: null  # fill in\n" in written
    assert '\n  # password (text, required, secret)\n  password: "${env:SHOP_PASSWORD}"\n' in written
    assert Connection.from_file(place.folder / "shop.yaml").connector.protocol == "singer"
    output = place.json("init", "tap-shop", "--command", _tap(place, answers={}), "--force")
    assert (output["variables"], output["check"]) == ([], {"status": "succeeded", "message": ""})


def test_a_tap_that_tells_of_no_settings_leaves_its_config_to_be_filled_in(place: Place) -> None:
    output = place.json("init", "shop", "--command", _tap(place, tap="python", answers={}))
    assert (output["to_fill_in"], output["check"]) == (["config"], None)
    written = (place.folder / "shop.yaml").read_text()
    untold = 'The connector declares no config fields: see its documentation. Write secrets as "${env:NAME}".'
    assert written == (
        f'# shop\n# {untold}\nconnector:\n  protocol: singer\n  launch: {{kind: local, command: ["./tap-shop"]}}\n\n'
        "config: {}\n"
    )


def test_a_destination_is_asked_for_its_spec_and_gets_a_push_of_a_table(place: Place) -> None:
    destination = f"{sys.executable} -m dagster_airbyte_proto.testing.fake_destination"
    output = place.json("init", "crm", "--command", destination, "--from", "lake.shop.users", "--key", "id")
    assert (output["push"], output["to_fill_in"], output["check"]) == (
        True,
        [],
        {"status": "succeeded", "message": ""},
    )
    sent = Connection.from_file(place.folder / "crm.yaml").push or {}
    assert (sent["users"].table, sent["users"].key) == ("lake.shop.users", ("id",))


def test_a_destination_of_syncmaven_gets_a_push_with_the_fields_of_its_credentials(place: Place) -> None:
    destination = f"{sys.executable} -m dagster_airbyte_proto.testing.fake_syncmaven"
    options = ("--command", destination, "--protocol", "syncmaven", "--from", "shop.contacts", "--key", "id")
    output = place.json("init", "crm", *options)
    assert (output["push"], output["to_fill_in"]) == (True, ["path"])
    connection = Connection.from_file(place.folder / "crm.yaml")
    assert (connection.connector.protocol, list(connection.push or {})) == ("syncmaven", ["contacts"])


_ENRICHMENT = f"{sys.executable} -m dagster_airbyte_proto.testing.fake_enrichment"


def test_an_enrichment_gets_a_file_of_its_connector_alone(place: Place) -> None:
    options = ("--command", _ENRICHMENT, "--protocol", "syncmaven")
    output = place.json("init", "geo", *options)
    assert (output["push"], output["to_fill_in"], output["check"]["status"]) == (False, [], "succeeded")
    assert "among the `transforms` of a connection" in (place.folder / "geo.yaml").read_text()
    assert Connection.from_file(place.folder / "geo.yaml").push is None
    assert place.json("spec", "geo.yaml")["spec"]["roles"] == ["enrichment"]
    refused = place.run("init", "geo2", *options, "--from", "lake.shop.users", "--key", "id")
    assert (refused.code, "is an enrichment, and no destination" in refused.err) == (2, True)


def test_a_check_of_a_push_checks_the_connectors_of_its_transforms(place: Place) -> None:
    command = shlex.split(_ENRICHMENT.replace("fake_enrichment", "fake_syncmaven"))
    connector = {"protocol": "syncmaven", "launch": {"kind": "local", "command": command}}
    config = {"path": str(place.folder / "out")}
    document = {
        "connector": connector,
        "config": config,
        "push": {"contacts": {"from": "shop.users", "key": ["id"]}},
        "transforms": [{"connector": connector, "config": config, "columns": {"city": "string"}}],
    }
    (place.folder / "crm.yaml").write_text(json.dumps(document))
    checked = place.run("check", "crm.yaml")
    assert (checked.code, "its connector is no enrichment: its roles are destination" in checked.out) == (2, True)


def test_a_package_of_npm_is_a_destination_of_syncmaven() -> None:
    found = named_connector("npm", "@acme/crm@1.2.0", Path("crm.yaml"))
    assert (found.protocol, found.role) == ("syncmaven", "destination")
    assert found.launch == {"kind": "npm", "package": "@acme/crm@1.2.0"}
    assert [launch_kind(text) for text in ("@acme/crm@1.2.0", "crm@1.2.0", "crm==1.2.0")] == ["npm", "npm", "pypi"]
    assert connection_name("@acme/crm@1.2.0") == "crm"


def test_a_destination_of_the_registry_gets_a_push_whose_table_is_to_be_filled_in(place: Place) -> None:
    registry = json.loads((Path(__file__).parent / "oss_registry.json").read_text())
    password = {"properties": {"password": {"type": "string", "airbyte_secret": True}}, "required": ["password"]}
    registry["destinations"][0]["spec"] = {"connectionSpecification": password}
    (place.folder / "registry.json").write_text(json.dumps(registry))
    output = place.json("init", "destination-postgres", "--registry", "registry.json")
    assert output["to_fill_in"] == ["push.postgres.from", "push.postgres.key"]
    assert (output["file"], output["variables"]) == ("postgres.yaml", ["POSTGRES_PASSWORD"])
    refused = place.run("check", "postgres.yaml")
    assert (refused.code, "give `from`, a table, or `sql`, a query" in refused.err) == (2, True)


def test_a_source_with_a_destination_gets_a_relay_that_is_checked(place: Place) -> None:
    destination = place.folder / "target-files"
    fake = f"{sys.executable} -m dagster_airbyte_proto.testing.fake_destination"
    destination.write_text(f'#!/bin/sh\nexec {fake} "$@"\n')
    destination.chmod(0o755)
    source = _program(place, {"properties": {"count": {"type": "integer"}}})
    output = place.json("init", "shop", "--command", source, "--to", "./target-files")
    assert (output["push"], output["to"]) == (False, {"kind": "local", "command": ["./target-files"]})
    assert (output["to_fill_in"], output["check"]["status"]) == ([], "succeeded")
    connection = Connection.from_file(place.folder / "shop.yaml")
    assert connection.to is not None and connection.to.connector.protocol == "singer"


def test_a_failing_check_fails_and_the_file_stays(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = {"type": "CONNECTION_STATUS", "connectionStatus": {"status": "FAILED", "message": "no such shop"}}
    command = _program(place, {"properties": {}})
    scenario = place.folder / "scenario.json"
    answers = json.loads(scenario.read_text())["answers"] | {"check": {"lines": [json.dumps(failing)]}}
    scenario.write_text(json.dumps({"answers": answers}))
    output = place.run("init", "shop", "--command", command)
    assert output.code == 1 and output.out.startswith("shop: check failed: no such shop\nlog: ")
    assert (place.folder / "shop.yaml").exists()
    assert place.run("init", "shop", "--command", command, "--force", "--no-check").code == 0


def test_a_manifest_and_a_program_are_named_from_the_folder_of_the_file(place: Place) -> None:
    (place.folder / "api.yaml").write_text(MANIFEST)
    output = place.json("init", "shop", "--manifest", "api.yaml", "--file", "connections/shop.yaml")
    assert output["launch"] == {"kind": "manifest", "path": "../api.yaml"}
    assert output["to_fill_in"] == ["url", "client_id"]
    assert output["variables"] == ["SHOP_CLIENT_SECRET"]
    assert not (place.folder / ".airbyte-proto" / "venvs").exists()
    program = place.folder / "source"
    program.write_text(f'#!/bin/sh\nexec {_program(place)} "$@"\n')
    program.chmod(0o755)
    output = place.json("init", "other", "--command", "./source", "--file", "connections/other.yaml")
    assert output["launch"] == {"kind": "local", "command": ["../source"]}


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (["source-faker", *_REGISTRY, "--from", "lake.shop.users"], "a push sends to a destination"),
        (["destination-postgres", *_REGISTRY, "--to", "target-jsonl==0.1.4"], "a relay reads from a source"),
        (["x", "--command", "b", "--to", "airbyte-source-faker==7.2.1"], "--to names a source"),
        (["target-x", *_REGISTRY], "Name a target by its package"),
        (["fakre", *_REGISTRY], "Did you mean source-faker?"),
        (["x", "--registry", "none.json"], "Name the path or the URL of another with --registry"),
        (["tap-x", *_REGISTRY], "Name a tap by its package"),
        (["x", "--manifest", "m.yaml", "--protocol", "singer"], "a manifest is no Singer tap"),
        (["x", "--pypi", "a==1", "--command", "b"], "--pypi and --command cannot be combined"),
        (["x", "--command", "b 'c"], "its command cannot be split into words"),
        (["x", "--command", " "], "its command is empty"),
        (["x", "--pypi", ""], "its package is empty"),
        (["x", "--manifest", ""], "its manifest is empty"),
        (["faker", *_REGISTRY, "--to", ""], "its name is empty"),
        (["x", "--command", "b ${env:TOKEN}"], "writing connection x: connector.launch.command[1]: "),
        (["x", "--pypi", "a>=1"], "'a>=1' is not pinned to one version"),
        (["x", "--manifest", "none.yaml"], "there is no such file"),
        (["--", "-"], "has no letter or digit"),
    ],
)
def test_what_cannot_be_written_is_reported_plainly_and_writes_nothing(
    place: Place, words: list[str], output: str
) -> None:
    result = place.run("init", *words)
    assert (result.code, output in result.err) == (2, True), result.err
    assert [path.name for path in place.folder.iterdir() if path.name != ".airbyte-proto"] == ["airbyte-proto.yaml"]


def test_no_file_is_written_over_unless_forced(place: Place) -> None:
    file = place.folder / "faker.yaml"
    file.write_text("mine")
    refused = place.run("init", "faker", *_REGISTRY)
    assert (refused.code, file.read_text()) == (2, "mine")
    assert "writing faker.yaml: the file exists" in refused.err
    assert place.run("init", "faker", *_REGISTRY, "--force").code == 0
    assert file.read_text() != "mine"
    assert sorted(path.name for path in place.folder.iterdir()) == ["airbyte-proto.yaml", "faker.yaml"]


@pytest.mark.parametrize(("options", "count"), [((), 12), (("--no-input",), None)])
@pytest.mark.parametrize("program", [_program, _tap])
def test_a_terminal_is_asked_for_what_is_required(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    program: Callable[[Place], str],
    options: tuple[str, ...],
    count: int | None,
) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"many\n12\n")  # the first one is no number, and is asked for again
    try:
        with os.fdopen(theirs) as terminal:
            monkeypatch.setattr(sys, "stdin", terminal)
            done = place.run("init", "shop", "--command", program(place), *options)
    finally:
        os.close(ours)
    assert ("How many" in done.err, "must be a whole number" in done.err) == (bool(count), bool(count))
    assert "to set in the environment: SHOP_PASSWORD" in done.out
    written = Connection.from_file(place.folder / "shop.yaml").config or {}
    assert written["count"] == count
    assert written["password"] == "${env:SHOP_PASSWORD}"


def test_a_disk_without_hard_links_gets_its_file_too_and_no_other_is_overwritten(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")  # as exFAT does

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    command = _program(place, {"properties": {"count": {"type": "integer"}}})
    assert place.run("init", "shop", "--command", command, "--no-check").code == 0
    written = Path("shop.yaml").read_text()
    assert Connection.from_file("shop.yaml").name == "shop"
    assert sorted(each.name for each in place.folder.glob("*shop.yaml*")) == ["shop.yaml"]
    with pytest.raises(FileExistsError):
        write_new_file(Path("shop.yaml"), b"another")
    assert Path("shop.yaml").read_text() == written
