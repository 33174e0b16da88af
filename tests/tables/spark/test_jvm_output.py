"""The output of a JVM on our stderr: nothing of a start that succeeds, all of one that fails, and what comes later."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dagster_airbyte_proto.tables.spark.jvm.output import jvm_output, last_output

Eventually = Callable[[Callable[[], bool]], None]


def launch(output: int, script: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=output, stderr=output)


def end(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait()


def test_a_start_that_succeeds_is_quiet_and_later_output_is_shown(
    capfd: pytest.CaptureFixture[str], eventually: Eventually
) -> None:
    with jvm_output(None) as output:
        jvm = launch(output, "echo :: loading settings >&2; cat >/dev/null; echo out of memory")
        eventually(lambda: (Path("/proc") / str(jvm.pid) / "task" / str(jvm.pid) / "children").read_text() != "")
    assert capfd.readouterr() == ("", "")
    end(jvm)
    shown = ""
    while not shown:
        shown = capfd.readouterr().err
    assert shown == "out of memory\n"


def test_the_output_of_a_start_that_fails_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), jvm_output(None) as output:
        launch(output, "echo no such memory; exit 1").wait()
        raise ZeroDivisionError
    assert capfd.readouterr() == ("", "no such memory\n")


def test_more_than_a_pipe_holds_does_not_stop_the_start(capfd: pytest.CaptureFixture[str]) -> None:
    with jvm_output(None) as output:
        launch(output, "head -c 3000000 /dev/zero").wait(30)
    assert capfd.readouterr() == ("", "")


def test_what_cannot_be_written_to_stderr_does_not_stop_the_jvm() -> None:
    stderr = os.dup(2)
    try:
        with jvm_output(None) as output:
            jvm = launch(output, "cat >/dev/null; head -c 3000000 /dev/zero")
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, 2)
        os.close(full)
        assert jvm.stdin is not None
        jvm.stdin.close()
        assert jvm.wait(30) == 0
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def test_a_log_gets_everything(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "logs" / "jvm.log"
    with jvm_output(log) as output:
        launch(output, "echo :: loading settings").wait()
    assert log.read_text() == ":: loading settings\n"
    assert ":: loading settings" in last_output(log)
    assert capfd.readouterr() == ("", "")


def test_a_log_that_has_grown_large_makes_room_for_a_new_one(tmp_path: Path) -> None:
    log = tmp_path / "jvm.log"
    log.touch()
    os.truncate(log, 1 << 25)
    for _ in range(2):
        with jvm_output(log) as output:
            launch(output, "echo :: loading settings").wait()
    assert log.read_text() == ":: loading settings\n" * 2
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["jvm.log", "jvm.log.1"]
    assert (tmp_path / "jvm.log.1").stat().st_size == 1 << 25
