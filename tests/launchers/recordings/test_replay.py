from pathlib import Path

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.local.launcher import LocalLauncher
from dagster_airbyte_proto.launchers.recordings.recording import RecordingLauncher
from dagster_airbyte_proto.launchers.recordings.replay import ReplayLauncher
from dagster_airbyte_proto.protocols.conversation import Invocation
from tests.conformance.launcher import read_all, report_of


def _record(folder: Path, verb: str, said: str) -> None:
    launcher = RecordingLauncher(LocalLauncher(["sh", "-c", f"echo {said}; exit 2"]), folder, bytes)
    connector = launcher.launch(Invocation((verb,)), environment={})
    read_all(connector)
    report_of(connector)


def _replayed(folder: Path, verb: str) -> bytes:
    return read_all(ReplayLauncher(folder).launch(Invocation((verb, "--whatever")), environment={}))


def test_the_latest_recording_of_the_verb_is_replayed(tmp_path: Path) -> None:
    for number in range(11):
        _record(tmp_path, "read", str(number))
    _record(tmp_path, "spec", "spec")
    assert _replayed(tmp_path, "read") == b"10\n"
    assert _replayed(tmp_path, "spec") == b"spec\n"


def test_it_ends_as_the_real_one_did_once_it_is_read(tmp_path: Path) -> None:
    _record(tmp_path, "read", "1")
    connector = ReplayLauncher(tmp_path).launch(Invocation(("read",)), environment={})
    assert connector.wait(0) is None
    read_all(connector)
    report = report_of(connector)
    assert (report.code, report.stopped) == (2, False)
    connector.stop()
    assert report_of(connector) == report


def test_a_verb_that_was_not_recorded_is_refused_with_those_that_were(tmp_path: Path) -> None:
    _record(tmp_path, "spec", "1")
    _record(tmp_path, "read", "1")
    with pytest.raises(ConfigError, match="it holds read, spec only"):
        _replayed(tmp_path, "check")


@pytest.mark.parametrize("folder", ["", "gone"])
def test_no_recording_at_all_is_refused(tmp_path: Path, folder: str) -> None:
    with pytest.raises(ConfigError, match="there is none in"):
        ReplayLauncher(tmp_path / folder).identity()


def test_half_a_recording_counts_for_nothing(tmp_path: Path) -> None:
    _record(tmp_path, "read", "whole")
    (tmp_path / "read-2.stdout.jsonl").write_text("half")
    assert _replayed(tmp_path, "read") == b"whole\n"


@pytest.mark.parametrize("content", [b"{", b'{"verb": "\xff"}'])
def test_an_unreadable_recording_is_named(tmp_path: Path, content: bytes) -> None:
    _record(tmp_path, "read", "1")
    (tmp_path / "read-1.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"read-1\.json is not readable"):
        _replayed(tmp_path, "read")


def test_identity_follows_the_contents(tmp_path: Path) -> None:
    _record(tmp_path, "read", "1")
    first = ReplayLauncher(tmp_path).identity()
    (tmp_path / "read-1.stdout.jsonl").write_text("2\n")
    assert ReplayLauncher(tmp_path).identity() != first
