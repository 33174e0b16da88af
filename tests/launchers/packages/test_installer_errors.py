"""The errors of installations: their class says who can act, and whether a retry may help."""

import os
from pathlib import Path

import pytest

from dagster_airbyte_proto.errors import ConfigError, ConnectorError, ProtoError, StagingError
from dagster_airbyte_proto.launchers.packages import environments
from dagster_airbyte_proto.launchers.packages.pypi_launcher import PypiLauncher

_NOBODY = "http://127.0.0.1:9/simple"
_NO_ROOM = "error: failed to write a file: No space left on device (os error 28)"
_NO_NAME = "error: Failed to fetch\n  Caused by: dns error: Temporary failure in name resolution"
_STRANGER = "error: Failed to fetch\n  Caused by: error sending request: invalid peer certificate: UnknownIssuer"
_NO_VERSION = "error: No solution found: there is no version of source==1.0"
_URL = "https://pypi.example.org/simple/source/"
_FETCH = f"error: Failed to fetch: `{_URL}`\n  Caused by: "
_BUSY = f"{_FETCH}HTTP status server error (503 Service Unavailable) for url ({_URL})"
_TOO_MANY = f"{_FETCH}HTTP status client error (429 Too Many Requests) for url ({_URL})"
_FORBIDDEN = f"{_FETCH}HTTP status client error (403 Forbidden) for url ({_URL})"
_BROKEN_OFF = f"{_FETCH}request or response body error\n  Caused by: unexpected end of file"


def _failure(folder: Path) -> ProtoError:
    with pytest.raises(ProtoError) as raised:
        PypiLauncher("source==1.0", cache=folder / "cache").identity()
    return raised.value


def _uv_that_says(text: str, folder: Path) -> Path:
    """A program `uv` in a folder of its own, which fails with these words."""
    uv = folder / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{text}\nEND\nexit 2\n")
    uv.chmod(0o755)
    return uv


@pytest.mark.everyday("uv")
@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_an_index_that_is_away_may_come_back(installer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if installer == "pip":
        monkeypatch.setattr(environments, "find_uv", lambda: None)
    for name in [each for each in os.environ if each.startswith(("UV_", "PIP_"))]:
        monkeypatch.delenv(name)
    for name in ("UV_DEFAULT_INDEX", "PIP_INDEX_URL"):
        monkeypatch.setenv(name, _NOBODY)
    for name in ("UV_HTTP_RETRIES", "PIP_RETRIES"):  # pip says why in its retries alone.
        monkeypatch.setenv(name, "1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    failure = _failure(tmp_path)
    assert (type(failure), failure.retryable) == (ConnectorError, True), failure
    assert failure.remedy.startswith("Check the network")


@pytest.mark.parametrize(
    ("said", "kind", "retryable"),
    [
        (_NO_NAME, ConnectorError, True),
        (_NO_ROOM, StagingError, True),
        (_STRANGER, ConfigError, False),
        (_NO_VERSION, ConfigError, False),
        (_BUSY, ConnectorError, True),
        (_TOO_MANY, ConnectorError, True),
        (_BROKEN_OFF, ConnectorError, True),
        (_FORBIDDEN, ConfigError, False),
    ],
    ids=["no_name", "no_room", "stranger", "no_version", "busy", "too_many", "broken_off", "forbidden"],
)
def test_the_words_of_the_installer_say_who_can_act(
    said: str, kind: type[ProtoError], retryable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = _uv_that_says(said, tmp_path)
    monkeypatch.setenv("PATH", f"{uv.parent}{os.pathsep}{os.environ['PATH']}")
    failure = _failure(tmp_path)
    assert (type(failure), failure.retryable) == (kind, retryable)
    assert failure.found == said


def test_a_cache_that_may_not_be_written_has_another_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user has no home."""
    uv = _uv_that_says("error: failed to create directory `/.cache/uv`: Permission denied (os error 13)", tmp_path)
    monkeypatch.setenv("PATH", f"{uv.parent}{os.pathsep}{os.environ['PATH']}")
    assert "UV_CACHE_DIR" in _failure(tmp_path).remedy
