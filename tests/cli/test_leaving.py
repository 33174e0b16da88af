"""The start of Spark's JVM: nobody waits for one that is not needed any more, and a sync without rows starts none.

The JVM is a stand-in that never gets ready, and that ends when the pipe from us does, as the real one.
"""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import USERS, Place, until

_JAVA = """#!/bin/sh
echo started >> {log}
exec cat > /dev/null
"""


def _stand_in_java(folder: Path) -> tuple[dict[str, Any], Path]:
    """The environment of a command whose Spark never comes up, and the file that is there once a JVM was started."""
    home, log = folder / "jre", folder / "java.log"
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    program.write_text(_JAVA.format(log=log))
    program.chmod(0o755)
    return {"JAVA_HOME": str(home), "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}, log


@pytest.fixture
def java(place: Place) -> dict[str, Any]:
    """The environment of a command whose Spark never comes up, with tables that need it."""
    Path("airbyte-proto.yaml").unlink()
    return _stand_in_java(place.folder)[0]


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
    assert "\nerror: choosing streams (--streams): there is no stream 'user'\n" in ended.err


@pytest.mark.spark
def test_an_iceberg_sync_that_brings_nothing_starts_no_java(pier: Place) -> None:
    """The command is a process of its own. The syncs before it have the session of the tests."""
    file = pier.connect(USERS)
    committed = [pier.json("sync", file)["streams"]["users"]["committed"] for _ in range(2)]
    environment, log = _stand_in_java(pier.folder)
    running = pier.start("sync", file, "--json", **environment)
    until(lambda: log.exists() or running.process.poll() is not None)
    assert not log.exists()
    ended = running.end()
    assert ended.code == 0, ended.err
    users = ended.json["streams"]["users"]
    assert (committed, users["status"], users["emitted"]) == ([25, 0], "complete", 0)

    pier.connect({**USERS, "streams": {"users": {"records": 26}}})
    running = pier.start("sync", file, **environment)
    until(lambda: log.exists() or running.process.poll() is not None)
    running.process.send_signal(signal.SIGINT)
    assert (running.end().code, log.exists()) == (130, True)
