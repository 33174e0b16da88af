import gc
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from dagster_airbyte_proto.errors import ConfigError, ConnectorError
from dagster_airbyte_proto.launchers.local import running_program as running
from dagster_airbyte_proto.launchers.local.launcher import LocalLauncher
from dagster_airbyte_proto.launchers.local.running_program import LocalConnector
from dagster_airbyte_proto.launchers.permissions import Permissions
from dagster_airbyte_proto.launchers.process import LaunchOptions
from dagster_airbyte_proto.protocols.conversation import Invocation
from tests.conformance.launcher import is_running, read_all, report_of, start, until
from tests.launchers.conftest import FAKE_CONNECTOR
from tests.launchers.fake_connector import LINE
from tests.sync.read.test_failures import mounted
from tests.sync.shop import descriptors

_COMMAND = (sys.executable, "-S", str(FAKE_CONNECTOR))
_OWNER = Path(__file__).parent / "owner.py"
_ROOT = Path(__file__).parents[3]


@contextmanager
def _owner(runs_folder: Path, behaviour: str, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """Another process of ours that runs a connector, and the process ids that it told."""
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    command = [sys.executable, str(_OWNER), str(runs_folder), behaviour, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as owner:
        assert owner.stdout is not None
        try:
            yield owner, [int(number) for number in owner.stdout.readline().split()]
        finally:
            owner.kill()


def _guardian_of(process: int) -> int:
    """The connector's parent."""
    return int(Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[1])


class TestDyingWithUs:
    def test_kill_9_of_us_ends_the_connector_and_all_that_it_forked(self, runs_folder: Path) -> None:
        with _owner(runs_folder, "family_and_wait") as (owner, processes):
            assert len(processes) == 3
            guardian = _guardian_of(processes[0])
            assert all(map(is_running, processes)), "the thread that launched it has ended, and it must live"
            assert len(list(runs_folder.iterdir())) == 1
            owner.kill()
            until(lambda: not any(map(is_running, [*processes, guardian])), "all are gone")
            assert list(runs_folder.iterdir()) == [], "the config must not outlive the run"

    def test_the_config_goes_too_if_we_close_our_files_well_before_we_count_as_dead(self, runs_folder: Path) -> None:
        with _owner(runs_folder, "family_and_wait", "slow_death") as (_, processes):
            until(lambda: not any(map(is_running, processes)), "all are gone")
            until(lambda: list(runs_folder.iterdir()) == [], "the config is gone")

    def test_a_copy_of_us_that_holds_the_pipe_keeps_nothing_alive(self, runs_folder: Path) -> None:
        with _owner(runs_folder, "family_and_wait", "copy") as (owner, processes):
            *of_connector, copy = processes
            owner.kill()
            until(lambda: not any(map(is_running, of_connector)), "all are gone")
            assert is_running(copy)
            os.kill(copy, signal.SIGKILL)

    def test_kill_9_of_the_guardian_ends_the_connector(self, runs_folder: Path) -> None:
        connector = _launch("family_and_wait", runs_folder)
        processes = [int(number) for number in (connector.read(30) or b"").split()]
        os.kill(_guardian_of(processes[0]), signal.SIGKILL)
        report = report_of(connector)
        assert (report.code, report.signal, report.stopped) == (None, signal.SIGKILL, False)
        assert connector.read(0) == b"", "one that left the group lives on, and holds the pipe"
        in_group = processes[:1] + [process for process in processes[1:] if _group(process) == processes[0]]
        until(lambda: not any(map(is_running, in_group)), "its group is gone")
        assert list(runs_folder.iterdir()) == []
        for process in processes:
            if is_running(process):
                os.kill(process, signal.SIGKILL)

    def test_kill_9_of_the_guardian_while_we_are_paused_ends_the_connector_too(self, runs_folder: Path) -> None:
        with _owner(runs_folder, "hang_and_tell") as (owner, (process,)):
            os.kill(owner.pid, signal.SIGSTOP)
            os.kill(_guardian_of(process), signal.SIGKILL)
            until(lambda: not is_running(process), "the kernel has ended it")

    def test_a_guardian_that_does_not_answer_is_not_waited_for(
        self, runs_folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(running, "GUARDIAN_END_SECONDS", 0.0)
        connector = _launch("hang_and_tell", runs_folder)
        process = int(connector.read(30) or b"")
        os.kill(_guardian_of(process), signal.SIGSTOP)
        connector.stop()
        assert (report_of(connector).signal, report_of(connector).stopped) == (signal.SIGKILL, True)
        until(lambda: not is_running(process), "the kernel has ended it")

    def test_a_signal_for_everybody_leaves_the_end_of_the_connector_to_us(self, runs_folder: Path) -> None:
        others = _guardians()
        connector = _launch("ignore_sigterm", runs_folder)
        assert connector.read(30) == LINE
        [child] = _guardians() - others
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(child, number)
        assert connector.wait(0.05) is None
        connector.stop()
        assert report_of(connector).stopped


def _group(process: int) -> int | None:
    try:
        return os.getpgid(process)
    except ProcessLookupError:
        return None


def _guardians() -> set[int]:
    """The guardians of this process. Tests before this one may have left some."""
    return {int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit() and _is_our_guardian(each)}


def _is_our_guardian(process_folder: Path) -> bool:
    try:
        is_guardian = b"guardian.py" in (process_folder / "cmdline").read_bytes()
        return is_guardian and _guardian_of(int(process_folder.name)) == os.getpid()
    except OSError:  # One of another test process, which has just ended.
        return False


def _launch(behaviour: str, runs_folder: Path) -> LocalConnector:
    launcher = LocalLauncher(_COMMAND, options=LaunchOptions(runs_folder=runs_folder, stop_grace_seconds=0.2))
    connector = start(launcher, behaviour)
    assert isinstance(connector, LocalConnector)
    return connector


class TestStopping:
    def test_a_stop_from_another_thread_ends_a_waiting_read(self, runs_folder: Path) -> None:
        connector = _launch("hang", runs_folder)
        assert connector.read(30) == LINE
        found: list[bytes | None] = []
        reader = threading.Thread(target=lambda: found.append(connector.read(60)))
        reader.start()
        connector.stop()
        reader.join(30)
        assert found == [b""]

    def test_a_stop_after_the_end_changes_nothing(self, runs_folder: Path) -> None:
        connector = _launch("fail", runs_folder)
        assert read_all(connector) == LINE
        report = report_of(connector)
        connector.stop()
        assert connector.wait(0) == report
        assert not report.stopped

    def test_many_runs_leave_no_descriptor_and_no_thread_behind(self, runs_folder: Path) -> None:
        def one_run(behaviour: str) -> None:
            connector = _launch(behaviour, runs_folder)
            connector.read(30)
            connector.stop()

        one_run("lines")
        gc.collect()
        before, threads = descriptors(), set(threading.enumerate())
        for behaviour in ("lines", "hang", "close_stdout", "die"):
            one_run(behaviour)
        with pytest.raises(ConfigError):
            LocalLauncher([str(_not_a_program(runs_folder))]).launch(Invocation(()), environment={})
        until(lambda: _stderr_readers() <= threads, "the end of the threads")
        assert descriptors() - before == set()


def _stderr_readers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "connector-stderr"}


class TestStderr:
    def test_each_line_is_told_while_the_connector_runs(self, runs_folder: Path) -> None:
        lines: list[bytes] = []
        options = LaunchOptions(runs_folder=runs_folder, on_stderr=lines.append)
        connector = start(LocalLauncher(_COMMAND, options=options), "lines")
        read_all(connector)
        report_of(connector)
        assert lines == [b"first", b"last"]

    def test_what_the_listener_raises_is_raised_by_wait_and_blocks_nothing(self, runs_folder: Path) -> None:
        def listen(line: bytes) -> None:
            raise OSError("the log's disk is full")

        options = LaunchOptions(runs_folder=runs_folder, on_stderr=listen)
        connector = start(LocalLauncher(_COMMAND, options=options), "flood_stderr")
        assert read_all(connector) == LINE
        with pytest.raises(OSError, match="disk is full"):
            connector.wait(60)

    @pytest.mark.parametrize("behaviour", ["flood_stderr", "endless_stderr_line"])
    def test_a_hundred_megabytes_of_it_need_no_memory(self, runs_folder: Path, behaviour: str) -> None:
        told = 0

        def listen(line: bytes) -> None:
            nonlocal told
            told += 1

        options = LaunchOptions(runs_folder=runs_folder, on_stderr=listen)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        connector = start(LocalLauncher(_COMMAND, options=options), behaviour)
        read_all(connector)
        report_of(connector)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * 1024
        assert told == (1001 if behaviour == "flood_stderr" else 1)


def _refusal(command: Sequence[str], options: LaunchOptions | None = None) -> str:
    with pytest.raises(ConfigError) as refused:
        LocalLauncher(command, options=options).launch(Invocation(()), environment={})
    return str(refused.value)


def _not_a_program(folder: Path) -> Path:
    path = folder / "not-a-program"
    path.write_text("neither ELF nor #!")
    path.chmod(0o755)
    return path


class TestRefusals:
    def test_an_unknown_program_is_named_with_where_it_was_looked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/usr/bin:/nowhere")
        message = _refusal(["source-nobody"])
        assert "'source-nobody'" in message
        assert "/nowhere" in message
        assert str(Path(sys.executable).parent) in message

    def test_a_program_beside_our_python_is_found_off_the_path(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        connector = LocalLauncher([Path(sys.executable).name, "-c", "print(1)"]).launch(Invocation(()), environment={})
        assert read_all(connector) == b"1\n"

    def test_the_given_environment_decides_the_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        (tmp_path / "greet").symlink_to("/bin/echo")
        launcher = LocalLauncher(["greet", "hello"])
        assert read_all(launcher.launch(Invocation(()), environment={"PATH": str(tmp_path)})) == b"hello\n"

    def test_a_path_is_relative_to_the_working_folder(self, tmp_path: Path) -> None:
        (tmp_path / "greet").symlink_to("/bin/pwd")
        launcher = LocalLauncher(["./greet", "-P"], options=LaunchOptions(working_folder=tmp_path))
        assert read_all(launcher.launch(Invocation(()), environment={})) == f"{tmp_path.resolve()}\n".encode()

    def test_a_missing_path_is_named(self, tmp_path: Path) -> None:
        assert f"there is no file {tmp_path}/gone" in _refusal([f"{tmp_path}/gone"])

    @pytest.mark.parametrize("by_path", [True, False])
    def test_a_file_that_is_not_executable_is_said_to_be_so(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_path: bool
    ) -> None:
        program = _not_a_program(tmp_path)
        program.chmod(stat.S_IRUSR)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert f"{program} is not executable" in _refusal([str(program) if by_path else program.name])

    def test_a_disk_that_no_program_may_run_from_is_said_to_be_one(self, tmp_path: Path) -> None:
        with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "noexec", "tmpfs") as disk:
            (disk / "greet").write_text("#!/bin/sh\n")
            (disk / "greet").chmod(0o755)
            assert "disk that no program may run from (noexec)" in _refusal([str(disk / "greet")])

    def test_a_folder_is_said_to_be_one(self, tmp_path: Path) -> None:
        assert "is a folder" in _refusal([str(tmp_path)])

    def test_a_file_that_is_no_program_is_said_to_be_none(self, tmp_path: Path) -> None:
        assert "neither a program for this machine nor a script" in _refusal([str(_not_a_program(tmp_path))])

    def test_a_script_without_its_interpreter_is_said_to_be_so(self, tmp_path: Path) -> None:
        script = _not_a_program(tmp_path)
        script.write_text("#!/nowhere/python\n")
        assert "the interpreter that its #! line names" in _refusal([str(script)])

    def test_a_missing_working_folder_is_said_to_be_so(self, tmp_path: Path) -> None:
        assert "working folder" in _refusal(["true"], LaunchOptions(working_folder=tmp_path / "gone"))

    def test_a_python_of_ours_that_cannot_be_loaded_is_told_with_the_way_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It may need a variable that a connector does not get."""
        python = _not_a_program(tmp_path)
        python.write_text('#!/bin/sh\necho "$0: error while loading shared libraries: libpython3.so" >&2\nexit 127\n')
        monkeypatch.setattr(sys, "executable", str(python))
        with pytest.raises(ConnectorError, match="error while loading shared libraries") as refused:
            LocalLauncher(["true"]).launch(Invocation(()), environment={})
        assert "LD_LIBRARY_PATH, in env_vars" in refused.value.remedy

    def test_a_working_directory_that_was_removed_under_us_is_said_to_be_so(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "gone").mkdir()
        monkeypatch.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        assert "the working directory cannot be read" in _refusal(["true"])

    def test_an_empty_command_is_refused(self) -> None:
        assert "it is empty" in _refusal([])

    def test_a_refused_start_leaves_no_folder(self, tmp_path: Path, runs_folder: Path) -> None:
        _refusal([str(_not_a_program(tmp_path))], LaunchOptions(runs_folder=runs_folder))
        assert list(runs_folder.iterdir()) == []


class TestIdentity:
    def test_it_begins_with_the_name_of_the_program(self) -> None:
        assert LocalLauncher(["sh"]).identity().startswith("sh-")
        assert LocalLauncher(["sh", "-c", "x" * 5000]).identity().startswith("sh-")

    def test_it_follows_the_program_its_arguments_and_the_files_they_name(self, tmp_path: Path) -> None:
        script = tmp_path / "connector.py"
        script.write_text("1")
        first = LocalLauncher(["sh", str(script)]).identity()
        script.write_text("22")
        second = LocalLauncher(["sh", str(script)]).identity()
        third = LocalLauncher(["sh", str(script), "--more"]).identity()
        assert len({first, second, third}) == 3

    @pytest.mark.parametrize("main", ["dist/main", None])
    def test_it_follows_the_script_of_a_package_of_node(self, tmp_path: Path, main: str | None) -> None:
        """`node .` names no file: a new build of the connector would have the answers of the old one."""
        (tmp_path / "dist").mkdir()
        (tmp_path / "package.json").write_text(json.dumps({"main": main}))
        script = tmp_path / ("dist/main.js" if main else "index.js")
        launcher = LocalLauncher(["sh", "."], options=LaunchOptions(working_folder=tmp_path))
        found = []
        for text in ("1", "22"):
            script.write_text(text)
            found.append(launcher.identity())
        (tmp_path / "out.jsonl").write_text("what it writes there")
        assert launcher.identity() == found[1] != found[0]
        (tmp_path / "package.json").write_text("{")
        assert launcher.identity().startswith("sh-")

    def test_it_follows_what_is_installed_in_the_programs_environment(self, tmp_path: Path) -> None:
        packages = tmp_path / "lib" / "python3.11" / "site-packages"
        (packages / "airbyte_cdk-7.0.dist-info").mkdir(parents=True)
        (tmp_path / "bin").mkdir()
        (tmp_path / "pyvenv.cfg").touch()
        script = _not_a_program(tmp_path / "bin")
        first = LocalLauncher([str(script)]).identity()
        (packages / "airbyte_cdk-7.0.dist-info").rename(packages / "airbyte_cdk-7.1.dist-info")
        assert LocalLauncher([str(script)]).identity() != first

    def test_it_is_that_of_the_program_on_the_path_that_its_connection_sets(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("ours", "its own"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "source-shop").symlink_to("/bin/echo")
        monkeypatch.setenv("PATH", str(tmp_path / "ours"))
        own = LaunchOptions(Permissions((f"PATH={tmp_path / 'its own'}",)))
        first = LocalLauncher(["source-shop"], options=own).identity()
        assert first != LocalLauncher(["source-shop"]).identity()
        (tmp_path / "ours" / "source-shop").unlink()
        assert LocalLauncher(["source-shop"], options=own).identity() == first

    def test_an_unknown_program_has_none(self) -> None:
        with pytest.raises(ConfigError):
            LocalLauncher(["source-nobody"]).identity()
