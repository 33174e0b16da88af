"""What every launcher must do. A new one adds a line to `tests/launchers/test_conformance.py`.

Both suites launch `tests/launchers/fake_connector.py`: a behaviour's name is the verb.
"""

import hashlib
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.launchers.process import ExitReport, Launcher, RunningConnector
from dagster_airbyte_proto.protocols.conversation import FileArgument, Invocation
from tests.launchers.fake_connector import LINE

Leftovers = Callable[[], list[str]]

RECORDED_BEHAVIOURS = ("lines", "fail", "die", "big")
_PATIENCE_SECONDS = 60.0


def start(launcher: Launcher, behaviour: str, *, config: bytes = b"{}", **environment: str) -> RunningConnector:
    invocation = Invocation((behaviour, FileArgument("config.json")), {"config.json": config}, "config.json")
    return launcher.launch(invocation, environment=environment)


def read_all(connector: RunningConnector) -> bytes:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    chunks: list[bytes] = []
    while time.monotonic() < deadline:
        chunk = connector.read(1.0)
        if chunk == b"":
            return b"".join(chunks)
        chunks.append(chunk or b"")
    raise AssertionError(f"stdout did not end within {_PATIENCE_SECONDS} s")


def report_of(connector: RunningConnector) -> ExitReport:
    report = connector.wait(_PATIENCE_SECONDS)
    assert report is not None, f"it did not end within {_PATIENCE_SECONDS} s"
    return report


def until(claim: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not claim():
        assert time.monotonic() < deadline, f"not within {_PATIENCE_SECONDS} s: {what}"
        time.sleep(0.01)


def is_running(process: int) -> bool:
    """A zombie runs no more: whoever adopted it may take its time to reap it."""
    try:
        state = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")


def grace_seconds(request: pytest.FixtureRequest) -> float:
    """The grace of a test's launcher: short, unless its connector does something before its end. On a busy machine that
    may take long."""
    return 60.0 if "unhurried" in request.fixturenames else 0.3


class LauncherConformance:
    """Any launcher, replays too. Needs a fixture `launcher`."""

    def test_output_arrives_whole_to_the_last_line_without_newline(self, launcher: Launcher) -> None:
        connector = start(launcher, "lines")
        assert read_all(connector) == LINE * 1000 + b'{"type":"STATE"'
        report = report_of(connector)
        assert connector.rewritten_file() is None
        assert (report.code, report.signal, report.stopped) == (0, None, False)
        assert report.ended_cleanly
        assert report.stderr_tail == ("first", "last")

    def test_two_hundred_megabytes_arrive_in_chunks_of_a_megabyte_at_most(self, launcher: Launcher) -> None:
        connector = start(launcher, "big")
        size = 0
        while (chunk := connector.read(_PATIENCE_SECONDS)) != b"":
            assert chunk is not None
            assert len(chunk) <= 1024 * 1024
            size += len(chunk)
        assert size == 200_000_000
        assert report_of(connector).ended_cleanly

    def test_exit_code_and_last_words_are_reported(self, launcher: Launcher) -> None:
        connector = start(launcher, "fail")
        assert read_all(connector) == LINE
        report = report_of(connector)
        assert (report.code, report.signal, report.stopped) == (3, None, False)
        assert report.stderr_tail == ("it broke",)
        assert not report.ended_cleanly

    def test_death_by_a_signal_is_reported_as_such(self, launcher: Launcher) -> None:
        connector = start(launcher, "die")
        assert read_all(connector) == LINE
        report = report_of(connector)
        assert (report.code, report.signal, report.stopped) == (None, signal.SIGSEGV, False)

    def test_a_stopped_connector_has_ended_and_says_nothing_more(self, launcher: Launcher) -> None:
        connector = start(launcher, "big")
        assert connector.read(_PATIENCE_SECONDS)
        connector.stop()
        connector.stop()
        assert connector.read(0) == b""
        report = report_of(connector)
        assert report.stopped
        assert (report.code, report.signal) == (None, signal.SIGTERM)

    def test_identity_stays_the_same(self, launcher: Launcher) -> None:
        assert launcher.identity() == launcher.identity() != ""


class LiveLauncherConformance(LauncherConformance):
    """A launcher with a program behind it, stopped with the grace of `grace_seconds`. Fixtures: `launcher`, and
    `leftovers`, a function that tells what there is of its runs."""

    @pytest.fixture
    def unhurried(self) -> None:
        """For a test whose connector does something before its end."""

    def test_nothing_in_time_is_none_and_a_running_connector_has_no_report(self, launcher: Launcher) -> None:
        connector = start(launcher, "hang")
        assert connector.read(_PATIENCE_SECONDS) == LINE
        assert connector.read(0.01) is None
        assert connector.wait(0.01) is None
        connector.stop()
        assert report_of(connector).signal == signal.SIGTERM

    def test_files_are_private_and_writable_and_gone_afterwards(self, launcher: Launcher, leftovers: Leftovers) -> None:
        connector = start(launcher, "folder", config=b"secret")
        _, *found = read_all(connector).decode().split("\n")
        assert found == ["0o700", "0o600", "secret"]
        report_of(connector)
        assert leftovers() == []
        assert connector.rewritten_file() == b"migrated"

    def test_a_link_in_the_place_of_a_file_is_not_followed(self, launcher: Launcher) -> None:
        connector = start(launcher, "link", config=b"secret")
        assert read_all(connector) == b""
        assert report_of(connector).code == 0
        assert connector.rewritten_file() is None

    def test_files_are_gone_after_a_stop(self, launcher: Launcher, leftovers: Leftovers) -> None:
        connector = start(launcher, "ignore_sigterm")
        assert connector.read(_PATIENCE_SECONDS) == LINE
        assert leftovers() != []
        connector.stop()
        assert leftovers() == []

    def test_the_environment_has_additions(self, launcher: Launcher) -> None:
        assert read_all(start(launcher, "environment", FAKE="given")) == b"given"

    def test_one_that_ignores_sigterm_is_killed_after_the_grace(self, launcher: Launcher) -> None:
        connector = start(launcher, "ignore_sigterm")
        assert connector.read(_PATIENCE_SECONDS) == LINE
        connector.stop()
        report = report_of(connector)
        assert (report.code, report.signal, report.stopped) == (None, signal.SIGKILL, True)

    @pytest.mark.usefixtures("unhurried")
    def test_one_with_more_last_words_than_a_pipe_holds_can_end_by_itself(self, launcher: Launcher) -> None:
        connector = start(launcher, "say_goodbye")
        assert connector.read(_PATIENCE_SECONDS) == LINE
        connector.stop()
        assert report_of(connector).code == 7

    @pytest.mark.usefixtures("unhurried")
    def test_what_one_writes_at_its_requested_end_can_be_read(self, launcher: Launcher) -> None:
        connector = start(launcher, "say_goodbye")
        assert connector.read(_PATIENCE_SECONDS) == LINE
        connector.request_stop()
        connector.request_stop()
        assert read_all(connector) == b"x" * 4_000_000
        report = report_of(connector)
        assert (report.code, report.stopped) == (7, True)

    def test_a_flood_on_stderr_blocks_nothing(self, launcher: Launcher) -> None:
        connector = start(launcher, "flood_stderr")
        assert read_all(connector) == LINE
        tail = report_of(connector).stderr_tail
        assert tail[-1] == "the end"
        assert len(tail) == 50
        assert {*tail[:-1]} == {" (cut)"}  # Each is one word.

    def test_stderr_without_a_newline_is_cut(self, launcher: Launcher) -> None:
        connector = start(launcher, "endless_stderr_line")
        assert read_all(connector) == LINE
        assert report_of(connector).stderr_tail == (" (cut)",)


def start_with_input(launcher: Launcher, behaviour: str) -> RunningConnector:
    return launcher.launch(Invocation((behaviour,), takes_input=True), environment={})


def fill(connector: RunningConnector) -> int:
    """Writes until nothing more is taken. Returns how much that was."""
    taken = 0
    while found := connector.write(b"x" * 65536, 0.2):
        taken += found
    return taken


def exchange(connector: RunningConnector, block: bytes, times: int) -> bytes:
    """Writes the block so many times and reads in turn, in one thread. Returns all of the output."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    chunks: list[bytes] = []
    for _ in range(times):
        rest = memoryview(block)
        while rest:
            assert time.monotonic() < deadline, "it neither reads nor writes"
            taken = connector.write(rest, 0)
            rest = rest[taken:]
            if not taken:
                chunks.append(connector.read(0.01) or b"")
    connector.close_input()
    return b"".join(chunks) + read_all(connector)


ALL_BYTES = bytes(range(256)) * 4096
"""A mebibyte of every byte there is."""


RECORDED_EXCHANGES = {"echo": 16, "write_first": 4, "read_first": 16, "read_slowly": 4}
"""How often each behaviour gets ALL_BYTES."""


class InputConformance:
    """Any launcher, replays too. Fixture: `launcher`."""

    def test_more_than_the_pipes_hold_comes_back_in_one_thread(self, launcher: Launcher) -> None:
        connector = start_with_input(launcher, "echo")
        assert exchange(connector, ALL_BYTES, RECORDED_EXCHANGES["echo"]) == ALL_BYTES * 16
        report = report_of(connector)
        assert (report.code, report.stderr_tail) == (0, ("end of input",))

    def test_one_that_writes_before_it_reads_does_not_deadlock(self, launcher: Launcher) -> None:
        connector = start_with_input(launcher, "write_first")
        assert exchange(connector, ALL_BYTES, RECORDED_EXCHANGES["write_first"]) == b"x" * 8_000_000 + ALL_BYTES * 4

    def test_one_that_reads_before_it_writes_gets_all(self, launcher: Launcher) -> None:
        connector = start_with_input(launcher, "read_first")
        assert exchange(connector, ALL_BYTES, RECORDED_EXCHANGES["read_first"]) == b"%d" % (16 << 20)

    def test_one_that_reads_slowly_gets_all_in_order(self, launcher: Launcher) -> None:
        connector = start_with_input(launcher, "read_slowly")
        digest = exchange(connector, ALL_BYTES, RECORDED_EXCHANGES["read_slowly"])
        assert digest == hashlib.sha256(ALL_BYTES * 4).hexdigest().encode()


class LiveInputConformance(InputConformance):
    """A launcher with a program behind it, stopped with the grace of `grace_seconds`."""

    def test_without_input_stdin_is_at_its_end(self, launcher: Launcher) -> None:
        connector = start(launcher, "echo")
        assert read_all(connector) == b""
        assert report_of(connector).stderr_tail == ("end of input",)

    def test_ten_thousand_small_writes_arrive_in_order(self, launcher: Launcher) -> None:
        connector = start_with_input(launcher, "echo")
        lines = [b"%d\n" % number for number in range(10_000)]
        found = b""
        for line in lines:
            while not connector.write(line, 0.01):
                found += connector.read(0.01) or b""
        connector.close_input()
        connector.close_input()
        assert found + read_all(connector) == b"".join(lines)

    def test_one_that_does_not_read_gives_back_pressure_and_can_be_stopped(self, launcher: Launcher) -> None:
        connector = start_with_input(launcher, "hang")
        assert fill(connector) <= 4 << 20
        connector.stop()
        assert report_of(connector).stopped
        with pytest.raises(ConnectorError, match="it has ended"):
            connector.write(b"x", 1.0)

    def test_a_stop_ends_a_write_that_waits(self, launcher: Launcher) -> None:
        connector = start_with_input(launcher, "ignore_sigterm")
        assert connector.read(_PATIENCE_SECONDS) == LINE
        fill(connector)
        with ThreadPoolExecutor(1) as pool:
            write = pool.submit(connector.write, b"x" * 65536, 10 * _PATIENCE_SECONDS)
            connector.stop()
            assert isinstance(write.exception(_PATIENCE_SECONDS), ConnectorError)
        assert report_of(connector).signal == signal.SIGKILL

    def test_a_stop_does_not_end_the_input_first(self, launcher: Launcher) -> None:
        """A destination that sees the end of its input stores what it holds, too."""
        connector = start_with_input(launcher, "echo")
        assert connector.write(b"x", _PATIENCE_SECONDS)
        assert connector.read(_PATIENCE_SECONDS) == b"x"
        connector.stop()
        report = report_of(connector)
        assert (report.signal, report.stderr_tail) == (signal.SIGTERM, ())

    def test_one_that_ends_early_is_an_error_of_the_write_and_has_its_report(self, launcher: Launcher) -> None:
        connector = start_with_input(launcher, "fail")
        deadline = time.monotonic() + _PATIENCE_SECONDS
        with pytest.raises(ConnectorError):
            while time.monotonic() < deadline:
                connector.write(b"x" * 65536, _PATIENCE_SECONDS)
        assert read_all(connector) == LINE
        report = report_of(connector)
        assert (report.code, report.stderr_tail) == (3, ("it broke",))
        connector.close_input()

    def test_what_outlives_the_connector_does_not_keep_its_input_open(self, launcher: Launcher) -> None:
        connector = start_with_input(launcher, "family")
        assert connector.read(_PATIENCE_SECONDS)
        report_of(connector)
        with pytest.raises(ConnectorError):
            connector.write(b"x", 1.0)


class LocalInputConformance(LiveInputConformance):
    """A launcher of programs of this machine."""

    def test_one_that_closed_its_stdin_is_an_error_of_the_write(self, launcher: Launcher) -> None:
        # Not so in a container, whose init holds the other end: nothing more is taken there.
        connector = start_with_input(launcher, "close_stdin")
        assert connector.read(_PATIENCE_SECONDS) == LINE
        with pytest.raises(ConnectorError, match="no longer reads"):
            connector.write(b"x", 1.0)
        connector.stop()
        assert report_of(connector).stopped


class LocalLauncherConformance(LiveLauncherConformance):
    """A launcher of programs of this machine. Besides: `runs_folder`."""

    @pytest.fixture
    def leftovers(self, runs_folder: Path) -> Leftovers:
        return lambda: [path.name for path in runs_folder.iterdir()]

    def test_files_are_in_a_folder_of_the_run(self, launcher: Launcher, runs_folder: Path) -> None:
        folder, *_ = read_all(start(launcher, "folder")).decode().split("\n")
        assert Path(folder).parent == runs_folder

    def test_its_environment_is_not_ours(self, launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FAKE", "ours")
        assert read_all(start(launcher, "environment")) == b""
        assert read_all(start(launcher, "environment", FAKE="given")) == b"given"

    def test_one_that_closed_stdout_and_lives_on_can_be_told_and_stopped(self, launcher: Launcher) -> None:
        # Not so in a container, whose init holds the other end: it is silent there until its heart-beat is missed.
        connector = start(launcher, "close_stdout")
        assert read_all(connector) == LINE
        assert connector.wait(0.05) is None
        connector.stop()
        assert report_of(connector).stopped

    @pytest.mark.parametrize("behaviour", ["family", "family_and_wait"])
    def test_nothing_that_it_forked_outlives_it(self, launcher: Launcher, behaviour: str) -> None:
        connector = start(launcher, behaviour)
        processes = [int(number) for number in (connector.read(_PATIENCE_SECONDS) or b"").split()]
        assert len(processes) == 3
        if behaviour == "family":
            assert read_all(connector) == b""
        else:
            assert all(map(is_running, processes))
            connector.stop()
        report_of(connector)
        assert not any(map(is_running, processes))
