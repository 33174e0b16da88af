"""Recordings of both directions: what is written on replay is compared, and the output comes in its turn."""

import io
import json
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.errors import ConfigError, ConnectorError, InternalError
from dagster_airbyte_proto.launchers.local.launcher import LocalLauncher
from dagster_airbyte_proto.launchers.process import Launcher, RunningConnector
from dagster_airbyte_proto.launchers.recordings.recorded_input import RecordedInput
from dagster_airbyte_proto.launchers.recordings.recording import RecordingLauncher
from dagster_airbyte_proto.launchers.recordings.replay import ReplayLauncher
from dagster_airbyte_proto.protocols.conversation import FileArgument, Invocation
from tests.conformance.launcher import read_all, report_of

_WRITE = Invocation(("write", "--config", FileArgument("config.json")), {"config.json": b"{}"}, takes_input=True)
_PATIENCE_SECONDS = 60.0
_ACKNOWLEDGE = """while read -r line; do case "$line" in state*) echo "ack $line";; esac; done; echo done"""
"""A destination that acknowledges each state."""


def _mask(text: bytes) -> bytes:
    return text.replace(b"hunter2", b"***").replace(b"4711", b'"***"')


def _launch(launcher: Launcher) -> RunningConnector:
    return launcher.launch(_WRITE, environment={})


def _recorder(folder: Path, script: str = _ACKNOWLEDGE) -> Launcher:
    return RecordingLauncher(LocalLauncher(["sh", "-c", script]), folder, _mask)


def _write(connector: RunningConnector, data: bytes) -> None:
    assert connector.write(data, _PATIENCE_SECONDS) == len(data)


def _read_line(connector: RunningConnector) -> bytes:
    found = b""
    while not found.endswith(b"\n"):
        found += connector.read(_PATIENCE_SECONDS) or b""
    return found


def _record(folder: Path, *blocks: bytes, script: str = _ACKNOWLEDGE) -> ReplayLauncher:
    """Records a run that gets these blocks, and then the end of its input."""
    connector = _launch(_recorder(folder, script))
    for block in blocks:
        _write(connector, block)
    connector.close_input()
    read_all(connector)
    report_of(connector)
    return ReplayLauncher(folder)


def test_a_person_can_read_both_directions_and_their_order(tmp_path: Path) -> None:
    connector = _launch(_recorder(tmp_path))
    _write(connector, b"row hunter2\nstate 1\n")
    assert _read_line(connector) == b"ack state 1\n"
    _write(connector, b"row 2\nrow 3\nsta")
    _write(connector, b"te 2\n")
    assert _read_line(connector) == b"ack state 2\n"
    connector.close_input()
    assert read_all(connector) == b"done\n"
    report_of(connector)
    assert (tmp_path / "write-1.stdin.jsonl").read_bytes() == b"row ***\nstate 1\nrow 2\nrow 3\nstate 2\n"
    assert (tmp_path / "write-1.stdout.jsonl").read_bytes() == b"ack state 1\nack state 2\ndone\n"
    turns = [json.loads(line) for line in (tmp_path / "write-1.turns.jsonl").read_text().splitlines()]
    assert turns == [{"stdin_lines": 2, "stdout_lines": 1}, {"stdin_lines": 5, "stdout_lines": 2}]
    assert json.loads((tmp_path / "write-1.json").read_bytes())["input_closed"] is True


def test_an_answer_comes_only_after_what_it_answers(tmp_path: Path) -> None:
    recorder = _launch(_recorder(tmp_path))
    for number in (b"1", b"2"):
        _write(recorder, b"row\nstate " + number + b"\n")
        _read_line(recorder)
    recorder.close_input()
    read_all(recorder)
    report_of(recorder)
    connector = _launch(ReplayLauncher(tmp_path))
    assert connector.read(0) is None
    _write(connector, b"row\n")
    assert connector.read(0) is None
    _write(connector, b"state 1\nrow")
    assert connector.read(0) == b"ack state 1\n"
    assert connector.read(0) is None
    with ThreadPoolExecutor(1) as reader:
        answer = reader.submit(connector.read, _PATIENCE_SECONDS)
        _write(connector, b"\nstate 2\n")
        assert answer.result() == b"ack state 2\n"
    assert connector.read(0) is None
    connector.close_input()
    assert read_all(connector) == b"done\n"
    assert report_of(connector).code == 0


@pytest.mark.parametrize(
    ("written", "line", "found"),
    [
        ((b"1\n2\nsecret\n",), 3, "it is not as it was recorded"),
        ((b"1\n2\n3", b"3\n"), 3, "it is not as it was recorded"),
        ((b"1\n2\n3\n4\n5\n",), 5, "it was written, and the recording ends before it"),
        ((b"1\n2\n3\n4\n5",), 5, "it was written, and the recording ends before it"),
        ((b"1\n2\n3\n",), 4, "the recording has it, and the input ends before it"),
        ((b"1\n2\n3\n4",), 4, "it is not as it was recorded"),
        ((), 1, "the recording has it, and the input ends before it"),
    ],
)
def test_the_first_difference_is_named_by_its_line_and_never_shown(
    tmp_path: Path, written: tuple[bytes, ...], line: int, found: str
) -> None:
    connector = _launch(_record(tmp_path, b"1\n2\n3\n4\n"))
    with pytest.raises(ConfigError) as first:
        for block in written:
            connector.write(block, 0)
        connector.close_input()
    assert first.value.found == f"line {line} of the input differs: {found}"
    connector.close_input()
    connector.stop()
    assert report_of(connector).stopped


def test_what_follows_a_difference_is_the_same_difference(tmp_path: Path) -> None:
    connector = _launch(_record(tmp_path, b"1\n2\n"))
    for _ in range(2):
        with pytest.raises(ConfigError, match="line 1 of"):
            connector.write(b"2\n", 0)


@pytest.mark.parametrize(
    ("written", "is_recorded"),
    [
        (b'{"password": "hunter2", "pin": 4711, "row": 1}\n', True),
        (b'{"password": "changed since", "pin": 12, "row": 1}\n', True),
        (b'{"password": "hunter2", "pin": 4711, "row": 2}\n', False),
        (b'{"password": "hunter2", "row": 1}\n', False),
    ],
)
def test_where_a_secret_was_masked_anything_may_stand(tmp_path: Path, written: bytes, is_recorded: bool) -> None:
    connector = _launch(_record(tmp_path, b'{"password": "hunter2", "pin": 4711, "row": 1}\n'))
    if is_recorded:
        _write(connector, written)
        connector.close_input()
    else:
        with pytest.raises(ConfigError, match="line 1 of the input differs"):
            connector.write(written, 0)


_TEXTS = st.lists(st.sampled_from([b"\n", b"a", b"hunter2", b'"', b"***"]), max_size=12).map(b"".join)


@given(recorded=_TEXTS, written=_TEXTS, cuts=st.lists(st.integers(0, 60)), is_cut=st.booleans())
def test_the_first_difference_is_the_same_wherever_chunks_are_cut(
    recorded: bytes, written: bytes, cuts: list[int], is_cut: bool
) -> None:
    def verdict(borders: list[int]) -> str:
        found = RecordedInput(io.BytesIO(_mask(recorded)), io.BytesIO(), doing="", is_cut=is_cut)
        try:
            for begin, end in pairwise(borders):
                found.write(written[begin:end])
            found.close()
        except ConfigError as error:
            return error.found
        return ""

    whole = verdict([0, len(written)])
    assert verdict(sorted({0, len(written), *(cut for cut in cuts if cut < len(written))})) == whole
    if written == recorded or (is_cut and written.startswith(recorded)):
        assert whole == ""
    elif b"***" not in _mask(recorded):
        assert whole != ""


def test_input_without_a_last_newline_is_compared_too(tmp_path: Path) -> None:
    replay = _record(tmp_path, b"1\n2", script="cat")
    connector = _launch(replay)
    _write(connector, b"1\n2")
    connector.close_input()
    assert read_all(connector) == b"1\n2"
    connector = _launch(replay)
    with pytest.raises(ConfigError, match="line 2 of the input differs: it is not"):
        connector.write(b"1\n2\n", 0)


def test_one_that_ended_early_ends_early_again(tmp_path: Path) -> None:
    connector = _launch(_recorder(tmp_path, "read -r line; echo failed; exit 3"))
    written = 0
    with pytest.raises(ConnectorError):
        while True:
            written += connector.write(b"0123456789\n" * 1000, _PATIENCE_SECONDS)
    connector.close_input()
    read_all(connector)
    assert report_of(connector).code == 3
    assert json.loads((tmp_path / "write-1.json").read_bytes())["input_closed"] is False
    connector = _launch(ReplayLauncher(tmp_path))
    taken = 0
    with pytest.raises(ConnectorError, match="it has ended"):
        while True:
            taken += connector.write(b"0123456789\n" * 777, 0)
    assert taken >= written
    assert read_all(connector) == b"failed\n"
    connector.close_input()
    assert report_of(connector).code == 3


def test_one_that_ended_before_it_got_any_input_ends_without(tmp_path: Path) -> None:
    connector = _launch(_recorder(tmp_path, "echo failed; exit 3"))
    assert read_all(connector) == b"failed\n"
    report_of(connector)
    connector = _launch(ReplayLauncher(tmp_path))
    assert read_all(connector) == b"failed\n"
    assert report_of(connector).code == 3


def test_one_that_ended_early_is_compared_as_far_as_it_came(tmp_path: Path) -> None:
    connector = _launch(_recorder(tmp_path))
    _write(connector, b"1\n2\n3")
    connector.stop()
    report_of(connector)
    connector = _launch(ReplayLauncher(tmp_path))
    with pytest.raises(ConfigError, match="line 2"):
        connector.write(b"1\nx\n3\n4\n", 0)
    connector = _launch(ReplayLauncher(tmp_path))
    _write(connector, b"1\n2\n3 and more\n4\n")
    assert read_all(connector) == b""


def test_a_recording_without_input_takes_none(tmp_path: Path) -> None:
    connector = RecordingLauncher(LocalLauncher(["echo"]), tmp_path, bytes).launch(
        _WRITE._replace(takes_input=False), environment={}
    )
    read_all(connector)
    report_of(connector)
    assert "input_closed" not in json.loads((tmp_path / "write-1.json").read_bytes())
    with pytest.raises(ConfigError, match=r"write-1\.json was recorded without input"):
        _launch(ReplayLauncher(tmp_path))
    without = ReplayLauncher(tmp_path).launch(_WRITE._replace(takes_input=False), environment={})
    with pytest.raises(InternalError, match="takes no input"):
        without.write(b"x", 0)


def test_a_recording_of_before_there_was_input_replays_as_it_did(tmp_path: Path) -> None:
    about = {"verb": "write", "arguments": ["write"], "code": 0, "signal": None, "stopped": False, "seconds": 0.5}
    (tmp_path / "write-1.json").write_text(json.dumps({**about, "stderr_tail": []}))
    (tmp_path / "write-1.stdout.jsonl").write_bytes(b"1\n2")
    replay = ReplayLauncher(tmp_path)
    assert read_all(replay.launch(_WRITE._replace(takes_input=False), environment={})) == b"1\n2"
    assert replay.identity() == f"{tmp_path.name}-727cd46492cdafd6", "it is a key of what is kept between runs"


def test_identity_follows_the_input(tmp_path: Path) -> None:
    replay = _record(tmp_path, b"1\n")
    first = replay.identity()
    (tmp_path / "write-1.stdin.jsonl").write_bytes(b"2\n")
    assert replay.identity() != first


def test_a_connector_that_does_not_start_leaves_no_recording(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        _launch(RecordingLauncher(LocalLauncher(["destination-nobody"]), tmp_path, _mask))
    assert list(tmp_path.iterdir()) == []
