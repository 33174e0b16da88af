"""A program's part of our environment: a real child prints its own, whichever launcher started it."""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dagster_airbyte_proto.connection.launch import Connector
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.docker.launcher import Confinement, ContainerOwner, DockerLauncher
from dagster_airbyte_proto.launchers.packages.pypi_launcher import PypiLauncher
from dagster_airbyte_proto.launchers.permissions import Permissions, joined_variables
from dagster_airbyte_proto.launchers.process import Launcher, LaunchOptions
from tests.conformance.launcher import read_all, report_of, start
from tests.launchers.programs import MakeLauncher, local, manifest, npm, pypi, recording
from tests.support.containers.images import Image

_SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "a", "STATE_URL": "b", "DAGSTER_CLOUD_API_TOKEN": "c", "POSTGRES_PASSWORD": "d",
    "GOOGLE_APPLICATION_CREDENTIALS": "e", "UV_INDEX_HOME_PASSWORD": "f", "PIP_INDEX_URL": "https://u:g@index.test",
}  # fmt: skip
_ALLOWED = {
    "PATH": os.environ["PATH"], "HOME": "/home/of-sync", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "Asia/Tokyo",
    "TMPDIR": "/tmp", "HTTP_PROXY": "http://p", "https_proxy": "http://p", "NO_PROXY": "db", "SSL_CERT_FILE": "/ca.pem",
    "REQUESTS_CA_BUNDLE": "/ca.pem",
}  # fmt: skip


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """An environment with all that a sync may have."""
    for name in os.environ:
        if name.startswith("LC_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    host = {**_SECRETS, **_ALLOWED}
    for name, value in host.items():
        monkeypatch.setenv(name, value)
    return host


def _printed(launcher: Launcher) -> dict[str, str]:
    connector = start(launcher, "all_variables", OURS="1")
    found: dict[str, str] = json.loads(read_all(connector))
    assert report_of(connector).ended_cleanly
    assert found.pop("OURS") == "1"
    return found


@pytest.mark.parametrize(
    ("own", "joined"),
    [
        ({}, ("10.0.0.1", "10.0.0.1")),
        ({"NO_PROXY": "db,*.local"}, ("db,*.local,10.0.0.1", "db,*.local,10.0.0.1")),
        ({"no_proxy": "db", "NO_PROXY": ""}, ("db,10.0.0.1", "db,10.0.0.1")),
        ({"no_proxy": "a", "NO_PROXY": "b"}, ("b,10.0.0.1", "a,10.0.0.1")),
    ],
)
def test_no_proxy_of_ours_is_added_to_its_own(own: dict[str, str], joined: tuple[str, str]) -> None:
    found = joined_variables({"HTTP_PROXY": "http://p", **own}, {"RPC_URL": "u", "NO_PROXY": "10.0.0.1"})
    assert (found.pop("NO_PROXY"), found.pop("no_proxy")) == joined
    assert found == {"HTTP_PROXY": "http://p", "RPC_URL": "u"}


@pytest.mark.everyday(
    "local", "pypi", "manifest", "recording", "test_it_gets_what_every_program_needs_and_nothing_else[npm]"
)
@pytest.mark.parametrize("make", [local, pypi, npm, manifest, recording])
@pytest.mark.usefixtures("host", "wheels", "npm_packages")
class TestPrograms:
    def test_it_gets_what_every_program_needs_and_nothing_else(self, make: MakeLauncher, tmp_path: Path) -> None:
        found = _printed(make(tmp_path, LaunchOptions()))
        found.pop("AIRBYTE_ENABLE_UNSAFE_CODE", None)  # the manifest launcher's own
        assert found.items() >= _ALLOWED.items()
        assert {name for name in found if not name.startswith("LC_")} <= {
            *_ALLOWED,
            "SSL_CERT_DIR",
            "CURL_CA_BUNDLE",
            "NODE_EXTRA_CA_CERTS",
            "LANGUAGE",
            "PWD",  # of the shell that starts a script
        }

    def test_it_gets_what_its_connection_names(self, make: MakeLauncher, tmp_path: Path) -> None:
        granted = Permissions(("STATE_URL", "LEVEL=debug=1", "TZ=UTC"))
        found = _printed(make(tmp_path, LaunchOptions(permissions=granted)))
        assert (found["STATE_URL"], found["LEVEL"], found["TZ"]) == ("b", "debug=1", "UTC")
        assert not found.keys() & (_SECRETS.keys() - {"STATE_URL"})

    def test_a_variable_that_nobody_set_is_named(self, make: MakeLauncher, tmp_path: Path) -> None:
        granted = Permissions(("STATE_URL", "SHOP_TOKEN", "SHOP_KEY"))
        with pytest.raises(ConfigError, match="env_vars names SHOP_TOKEN, SHOP_KEY, and our own environment has no"):
            start(make(tmp_path, LaunchOptions(permissions=granted)), "lines")


def test_a_container_gets_what_its_launch_names_too() -> None:
    launch = {"kind": "docker", "image": "source", "env_vars": ["LEVEL=debug"]}
    connector = Connector.model_validate({"protocol": "airbyte", "launch": launch, "env_vars": ["STATE_URL"]})
    assert connector.variables == ("STATE_URL", "LEVEL=debug")


@pytest.mark.docker
@pytest.mark.usefixtures("host")
def test_a_container_gets_what_its_connection_names(fake_image: Image) -> None:
    options = LaunchOptions(permissions=Permissions(("STATE_URL", "LEVEL=debug")))
    alone, labels = Confinement(network="none"), {"test": fake_image.test}
    found = _printed(DockerLauncher(fake_image.launched(), alone, owner=ContainerOwner(labels), options=options))
    assert (found["STATE_URL"], found["LEVEL"]) == ("b", "debug")
    assert not found.keys() & (_SECRETS.keys() - {"STATE_URL"})
    assert found["HOME"] != _ALLOWED["HOME"]
    missing = LaunchOptions(permissions=Permissions(("SHOP_TOKEN",)))
    with pytest.raises(ConfigError, match="env_vars names SHOP_TOKEN"):
        start(DockerLauncher(fake_image.launched(), alone, owner=ContainerOwner(labels), options=missing), "lines")
    assert fake_image.leftovers() == []


@pytest.mark.usefixtures("wheels", "host")
def test_the_build_of_a_package_gets_the_settings_of_indexes_and_no_other_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The uv that is first on the PATH prints its environment, then does its work."""
    real, written = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}"), tmp_path / "seen"
    assert real
    spy = tmp_path / "bin" / "uv"
    spy.parent.mkdir()
    spy.write_text(f'#!/bin/sh\nenv > {written}\nexec {real} "$@"\n')
    spy.chmod(0o755)
    monkeypatch.setenv("PATH", f"{spy.parent}:{os.environ['PATH']}")
    granted = LaunchOptions(permissions=Permissions(("STATE_URL",)))
    PypiLauncher("airbyte-source-fake==1.0", cache=tmp_path / "cache", options=granted).identity()
    seen = dict(line.split("=", 1) for line in written.read_text().splitlines() if "=" in line)
    assert seen.items() >= {name: value for name, value in _SECRETS.items() if name.startswith(("UV_", "PIP_"))}.items()
    assert not seen.keys() & {name for name in _SECRETS if not name.startswith(("UV_", "PIP_"))}
    assert seen["HTTP_PROXY"] == "http://p"
