import io
import json
import stat
from collections.abc import Mapping
from functools import reduce
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.errors import ConfigError, StagingError
from dagster_airbyte_proto.launchers.local.launcher import LocalLauncher
from dagster_airbyte_proto.launchers.process import RunningConnector
from dagster_airbyte_proto.launchers.recordings import recording
from dagster_airbyte_proto.launchers.recordings.recording import MaskedFile, RecordingLauncher
from dagster_airbyte_proto.launchers.recordings.run_files import verb_of
from dagster_airbyte_proto.protocols.conversation import FileArgument, Invocation
from tests.conformance.launcher import read_all, report_of
from tests.sync.read.test_failures import mounted

_SECRET = b"hunter2"


def _mask(text: bytes) -> bytes:
    return text.replace(_SECRET, b"***")


def _record(folder: Path, script: str, invocation: Invocation) -> RunningConnector:
    launcher = RecordingLauncher(LocalLauncher(["sh", "-c", script]), folder, _mask)
    connector = launcher.launch(invocation, environment={})
    read_all(connector)
    return connector


def _read_invocation(config: bytes = b'{"password": "hunter2"}') -> Invocation:
    files = {"config.json": config, "state.json": b'[{"a": 1.0}]'}
    return Invocation(("read", "--config", FileArgument("config.json"), "--state", FileArgument("state.json")), files)


def test_a_person_can_read_what_was_kept(tmp_path: Path) -> None:
    report_of(_record(tmp_path, "echo a line with hunter2; echo hunter2 is wrong >&2; exit 4", _read_invocation()))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["read-1.files", "read-1.json", "read-1.stdout.jsonl"]
    assert (tmp_path / "read-1.stdout.jsonl").read_bytes() == b"a line with ***\n"
    assert (tmp_path / "read-1.files" / "config.json").read_bytes() == b'{"password": "***"}'
    assert (tmp_path / "read-1.files" / "state.json").read_bytes() == b'[{"a": 1.0}]'
    kept = json.loads((tmp_path / "read-1.json").read_bytes())
    assert kept["arguments"] == ["read", "--config", {"file": "config.json"}, "--state", {"file": "state.json"}]
    assert (kept["verb"], kept["code"], kept["signal"], kept["stopped"]) == ("read", 4, None, False)
    assert kept["stderr_tail"] == ["*** is wrong"]


def test_secrets_that_become_known_later_are_masked_in_every_file(tmp_path: Path) -> None:
    secrets = {b"hunter2"}
    launcher = RecordingLauncher(
        LocalLauncher(["sh", "-c", "echo token new1; echo new1 >&2"]),
        tmp_path,
        lambda text: reduce(lambda masked, secret: masked.replace(secret, b"***"), secrets, text),
    )
    for _ in range(2):
        connector = launcher.launch(_read_invocation(b'{"password": "new1"}'), environment={})
        read_all(connector)
        report_of(connector)
    secrets.add(b"new1")
    launcher.mask_again()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 8
    assert not [path.name for path in files if b"new1" in path.read_bytes()]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)


def test_the_reader_gets_the_bytes_unmasked(tmp_path: Path) -> None:
    launcher = RecordingLauncher(LocalLauncher(["echo", "hunter2"]), tmp_path, _mask)
    assert read_all(launcher.launch(Invocation(()), environment={})) == b"hunter2\n"


def test_what_is_kept_is_for_its_owner_only(tmp_path: Path) -> None:
    report_of(_record(tmp_path / "new", "echo 1", _read_invocation()))
    for path in (tmp_path / "new").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_each_run_is_kept_beside_the_earlier_ones(tmp_path: Path) -> None:
    for _ in range(2):
        report_of(_record(tmp_path, "echo 1", Invocation(("spec",))))
    report_of(_record(tmp_path, "echo 1", Invocation(("check",))))
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["check-1.json", "spec-1.json", "spec-2.json"]


def test_a_run_is_whole_only_once_its_end_is_known(tmp_path: Path) -> None:
    connector = _record(tmp_path, "echo 1", Invocation(("spec",)))
    assert not (tmp_path / "spec-1.json").exists()
    report_of(connector)
    assert (tmp_path / "spec-1.json").exists()


def test_a_stopped_run_is_kept_as_far_as_it_was_read(tmp_path: Path) -> None:
    launcher = RecordingLauncher(LocalLauncher(["sh", "-c", "echo 1; exec sleep 600"]), tmp_path, _mask)
    connector = launcher.launch(Invocation(("--discover",)), environment={})
    assert connector.read(30) == b"1\n"
    connector.stop()
    report_of(connector)
    assert (tmp_path / "discover-1.stdout.jsonl").read_bytes() == b"1\n"
    assert json.loads((tmp_path / "discover-1.json").read_bytes())["stopped"] is True


def test_a_connector_that_does_not_start_leaves_no_recording(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        RecordingLauncher(LocalLauncher(["source-nobody"]), tmp_path, _mask).launch(_read_invocation(), environment={})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["/proc/recording", "/proc/version", "/proc/version/recording"])
def test_where_no_files_can_be_made_another_folder_is_requested(folder: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _record(Path(folder), "echo line", _read_invocation())
    assert refused.value.remedy == "Name another folder, in which this user may make files."


def test_a_full_disk_is_a_staging_error(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=64k", "tmpfs") as disk:
        with pytest.raises(StagingError) as full:
            report_of(_record(disk, "head -c 200000 /dev/zero | tr '\\0' x", _read_invocation()))
        assert full.value.remedy == "Make room there."


class _Unclosed(io.BytesIO):
    def close(self) -> None:
        """So that what was written can be looked at."""


@given(
    text=st.lists(st.sampled_from([_SECRET, b"x", b"\n", b"hunt", b"yyyyyyyyyyyyy"]), max_size=40).map(b"".join),
    cuts=st.lists(st.integers(0, 300)),
    long_line_bytes=st.integers(8, 40),
)
def test_no_secret_slips_through_wherever_chunks_are_cut(text: bytes, cuts: list[int], long_line_bytes: int) -> None:
    file = _Unclosed()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(recording, "_LONG_LINE_BYTES", long_line_bytes)
        patched.setattr(recording, "_LONGEST_SECRET_BYTES", len(_SECRET))
        output = MaskedFile(file, _mask)
        borders = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
        for start, end in pairwise(borders):
            output.write(text[start:end])
        output.close()
    assert file.getvalue() == _mask(text)


@pytest.mark.parametrize(
    ("arguments", "verb"),
    [
        (("read", "--config", FileArgument("c")), "read"),
        (("--config", FileArgument("c"), "--discover"), "config-discover"),
        ((), "run"),
        (("../up",), "___up"),
    ],
)
def test_the_verb_is_the_first_word_or_all_options(arguments: tuple[str | FileArgument, ...], verb: str) -> None:
    files: Mapping[str, bytes] = {}
    assert verb_of(Invocation(arguments, files)) == verb
