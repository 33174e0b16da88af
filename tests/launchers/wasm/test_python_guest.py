"""A component of Python, made by `componentize-py` from our WIT: what a toolchain makes runs as what we make by hand.

It has WASI, which the guests of C have not: so it tries what a component may not do.
"""

import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from dagster_airbyte_proto.launchers.permissions import Permissions
from dagster_airbyte_proto.launchers.process import LaunchOptions
from dagster_airbyte_proto.protocols.conversation import Verb
from dagster_airbyte_proto.protocols.rapidbyte.component.wit_text import wit_text
from dagster_airbyte_proto.protocols.rapidbyte.grants import Narrowing
from tests.launchers.wasm.conftest import Component, output
from tests.support.needs import lacks
from tests.support.wasm import guests

pytestmark = pytest.mark.nightly

_APP = Path(guests.__file__).parent / "python_guest"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the component may use."""
    made = tmp_path_factory.mktemp("granted")
    (made / "inside.txt").write_text("x")
    (made / "link").symlink_to("/etc")
    return made


@pytest.fixture(scope="module")
def python(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Component:
    if find_spec("componentize_py") is None:
        lacks("componentize-py", "no componentize-py (pip install componentize-py)")
    place = tmp_path_factory.mktemp("python")
    (place / "wit").mkdir()
    (place / "wit" / "rapidbyte-connector.wit").write_text(wit_text())
    built = place / "built.wasm"
    command = [sys.executable, "-c", "from componentize_py import script; script()", "-d", str(place / "wit")]
    words = ["-w", "rapidbyte-source", "componentize", "-p", str(_APP), "app", "-o", str(built)]
    subprocess.run([*command, *words], check=True, capture_output=True, timeout=600)
    permissions = {"fs": {"preopens": [str(folder)]}, "env": {"allowed_vars": ["GRANTED", "UNSET"]}}
    manifest = {"id": "tests/python", "roles": {"source": {}}, "permissions": permissions}
    path = place / "source.wasm"
    path.write_bytes(guests.with_section(built.read_bytes(), "rapidbyte_manifest_v1", manifest))
    return Component(path, place / "cache")


def test_each_request_is_answered(python: Component) -> None:
    checked = output(python.launcher(), Verb.CHECK, {})
    assert checked.lines[0] == {"type": "check", "status": "warning", "message": "ok", "warnings": ["w"]}
    assert '"name": "t"' in output(python.launcher(), Verb.DISCOVER, {}).lines[0]["catalog"]
    read = output(python.launcher(), Verb.READ, {"ipc": "00ff"})
    assert read.batches == [b"\x00\xff"]
    assert [line["checkpoint"] for line in read.lines if line["type"] == "checkpoint"] == [
        '{"id": 1, "cursor_field": null}'
    ]
    assert read.report.ended_cleanly
    assert "a print of the guest" in read.report.stderr_tail


def test_an_error_has_every_field(python: Component) -> None:
    (line,) = output(python.launcher(), Verb.READ, {"fail": True}).lines
    assert line["error"] == [
        "auth", "NOPE", "told to", "per-record", True, 5, "fast", False, "before-commit", '{"a": 1}',
    ]  # fmt: skip


def test_it_gets_what_is_granted_and_nothing_else(
    python: Component, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRANTED", "seen")
    monkeypatch.setenv("SECRET", "unseen")
    with socket.create_server(("127.0.0.1", 0)) as server:
        config = {"mode": "surroundings", "folder": str(folder), "port": server.getsockname()[1]}
        found = output(python.launcher(), Verb.READ, config)
        server.settimeout(0.1)
        with pytest.raises(TimeoutError):
            server.accept()
    assert found.logged[0] == "variables: {'GRANTED': 'seen'}"
    assert found.logged[1].startswith("file: refused")
    assert found.logged[2] == "folder: ['inside.txt', 'link']"
    assert found.logged[3].startswith("outside: refused")
    assert found.logged[4] == "write: 1"
    assert found.logged[5].startswith("link: refused")
    assert found.logged[6].startswith("tcp: refused")
    assert found.logged[7].startswith("udp: refused")
    assert found.logged[9].startswith("by own link: refused")


def test_a_connection_takes_away(python: Component, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRANTED", "seen")
    config = {"mode": "surroundings", "folder": str(folder)}
    found = output(python.launcher(Narrowing(variables=(), preopens=())), Verb.READ, config)
    assert found.logged[0] == "variables: {}"
    assert found.logged[2].startswith("folder: refused")
    options = LaunchOptions(permissions=Permissions(("GRANTED=set",)))
    assert output(python.launcher(options=options), Verb.READ, config).logged[0] == "variables: {'GRANTED': 'set'}"


@pytest.mark.parametrize("mode", ["sleep", "stdin"])
def test_one_that_waits_for_ever_is_ended(python: Component, mode: str) -> None:
    found = output(python.launcher(Narrowing(timeout_seconds=2)), Verb.READ, {"mode": mode})
    assert "its call run took more than 2 s" in found.errors[0]


def test_forged_messages_are_but_prints(python: Component) -> None:
    """Its own output is stderr, so neither an answer nor a call of the host can be made up."""
    words = [b'{"type":"finished","stream":"users"}\n', b"\x00\x00\x00\x00" * 8, b"\xff" * 32]
    forged = b"".join(words).hex()
    found = output(python.launcher(), Verb.READ, {"mode": "forge", "forged": forged})
    assert found.errors == []
    assert found.kinds().count("finished") == 1
    assert not found.batches


def test_an_exception_says_what_it_was(python: Component) -> None:
    found = output(python.launcher(), Verb.READ, {"mode": "panic"})
    assert "the component trapped" in found.errors[0]
    assert "RuntimeError: the guest is at its end" in found.errors[0]
    assert found.report.code == 70
