"""Leaving while the Spark session is still starting: nobody waits for what is not needed any more.

The JVM is a stand-in that never gets ready, and that ends when the pipe from us does, as the real one.
"""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import USERS, Place

_JAVA = """#!/bin/sh
case "$*" in *-version*) echo 'openjdk version "17.0.1" 2021-10-19' >&2; exit 0;; esac
echo started >> {log}
exec cat > /dev/null
"""


@pytest.fixture
def java(place: Place) -> dict[str, Any]:
    """The environment of a command whose Spark never comes up, with tables that need it."""
    program = place.folder / "jre" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(_JAVA.format(log=place.folder / "java.log"))
    program.chmod(0o755)
    Path("airbyte-proto.yaml").unlink()
    return {"JAVA_HOME": str(place.folder / "jre"), "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.everyday("failure1")
@pytest.mark.parametrize("failure", [{}, {"failure": {"kind": "hang", "after": 15}}])
def test_a_cancelled_sync_does_not_wait_for_a_session_that_starts(
    place: Place, java: dict[str, str], failure: dict[str, Any]
) -> None:
    running = place.start("sync", place.connect({**USERS, **failure}), "--json", **java)
    running.wait_for("shop: run ")
    running.process.send_signal(signal.SIGINT)
    ended = running.end()
    assert ended.code == 130, ended.err
    assert ended.json["status"] == "cancelled" and "streams" in ended.json, (ended.out, ended.err)
    users = ended.json["streams"]["users"]
    assert users["committed"] == 0 and users["emitted"] == users["rejected"]
    assert "Traceback" not in ended.err
    assert place.json("state", "list") == {"connections": [{"connection": "shop", "states": []}]}


def test_what_the_user_got_wrong_is_reported_though_a_session_starts(place: Place, java: dict[str, str]) -> None:
    place.connect(USERS)
    ended = place.start("sync", "shop.yaml", "--streams", "user", **java).end()
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: choosing streams (--streams): there is no stream 'user'\n")
