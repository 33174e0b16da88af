"""The limits of a connector, in the same words for every launch: how it ends, and what the error says."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dagster_airbyte_proto.launchers.docker.launcher import Confinement, ContainerOwner, DockerLauncher
from dagster_airbyte_proto.launchers.local.guardian_report import GuardianReport
from dagster_airbyte_proto.launchers.permissions import Permissions
from dagster_airbyte_proto.launchers.process import ExitReport, LaunchOptions
from tests.conformance.launcher import read_all, report_of, start, until
from tests.launchers.fake_connector import LINE
from tests.launchers.programs import MakeLauncher, local, manifest, npm, pypi, recording
from tests.support.containers.images import Image
from tests.support.needs import require_bubblewrap

_ALONE = Confinement(network="none")


def _limits(*, megabytes: int | None = None, seconds: float | None = None, sandbox: bool = False) -> LaunchOptions:
    memory = None if megabytes is None else megabytes << 20
    permissions = Permissions(memory_bytes=memory, seconds=seconds, sandbox=sandbox)
    # The one that is deaf has it whole; the others need some of it, for what they do at SIGTERM.
    return LaunchOptions(permissions=permissions, stop_grace_seconds=3.0)


def _is_over_memory(report: ExitReport, megabytes: int) -> bool:
    assert (report.signal, report.stopped, report.is_over_limit) == (signal.SIGKILL, False, True)
    found = re.fullmatch(
        rf"was ended by signal 9: it held ([\d,]+) MiB of memory and may have {megabytes} MiB "
        r"\(limits: max_memory; raise that, or have it read less at once\)",
        report.how_it_ended,
    )
    return found is not None and megabytes <= int(found[1].replace(",", "")) < 600


def _check_over_time(report: ExitReport, seconds: float) -> None:
    assert (report.code, report.signal, report.stopped) == (None, signal.SIGTERM, False)
    assert report.how_it_ended == (
        f"was ended by signal 15: it ran for more than {seconds:g} s "
        "(limits: timeout_seconds; raise that if it needs longer)"
    )


@pytest.mark.everyday("local")
@pytest.mark.usefixtures("wheels", "npm_packages")
@pytest.mark.parametrize("make", [local, pypi, npm, manifest, recording])
class TestPrograms:
    def test_one_that_holds_too_much_memory_is_ended_and_the_error_says_so(
        self, make: MakeLauncher, tmp_path: Path
    ) -> None:
        connector = start(make(tmp_path, _limits(megabytes=200)), "eat_memory")
        assert read_all(connector) == b""
        assert _is_over_memory(report_of(connector), 200)

    def test_one_that_talks_for_ever_is_ended_and_that_is_no_good_end(self, make: MakeLauncher, tmp_path: Path) -> None:
        connector = start(make(tmp_path, _limits(seconds=0.5)), "talk_for_ever")
        assert set(read_all(connector).splitlines(keepends=True)) <= {LINE}
        _check_over_time(report_of(connector), 0.5)


def test_all_its_processes_count_together(tmp_path: Path) -> None:
    connector = start(local(tmp_path, _limits(megabytes=160)), "family_of_eaters")
    read_all(connector)
    assert _is_over_memory(report_of(connector), 160)


_SHARING = """
import os, sys, time
from dagster_airbyte_proto.launchers.local import guardian
told, tells = os.pipe()
if os.fork() == 0:
    kept = b"x" * (60 << 20)
    for _ in range(3):
        if os.fork() == 0:
            break
    os.write(tells, b".")
    time.sleep(600)
seen = b""
while len(seen) < 4:
    seen += os.read(told, 4)
found = []
for limit in (150, 50):
    meter = guardian._MemoryMeter(limit << 20)
    found += [meter.is_over() for _ in range(3)]
print(*found, meter.held_bytes >> 20)
"""


def test_memory_that_processes_share_counts_once_and_too_much_counts_at_the_second_look() -> None:
    with subprocess.Popen([sys.executable, "-c", _SHARING], stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            *found, held = process.stdout.readline().split()
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert found == [b"False", b"False", b"False", b"False", b"True", b"True"]
    assert 60 <= int(held) < 120


def test_one_that_is_deaf_is_killed_once_its_time_is_over(tmp_path: Path) -> None:
    connector = start(local(tmp_path, _limits(seconds=0.5)), "ignore_sigterm")
    is_deaf = read_all(connector) == LINE  # Unless the machine is so slow that it was not yet.
    report = report_of(connector)
    assert (report.signal, report.is_over_limit) == (signal.SIGKILL if is_deaf else signal.SIGTERM, True)
    assert "it ran for more than 0.5 s" in report.how_it_ended


def test_one_within_its_limits_ends_as_ever(tmp_path: Path) -> None:
    connector = start(local(tmp_path, _limits(megabytes=400, seconds=600)), "lines")
    read_all(connector)
    report = report_of(connector)
    assert (report.code, report.reason, report.is_over_limit) == (0, "", False)


def test_one_that_we_stop_was_not_over_its_time(tmp_path: Path) -> None:
    connector = start(local(tmp_path, _limits(seconds=600)), "hang")
    assert connector.read(60) == LINE
    connector.stop()
    report = report_of(connector)
    assert (report.signal, report.stopped, report.reason, report.is_over_limit) == (signal.SIGTERM, True, "", False)


def test_one_that_somebody_kills_is_said_to_be_so(tmp_path: Path) -> None:
    connector = start(local(tmp_path, LaunchOptions()), "hang_and_tell")
    os.kill(int(connector.read(60) or b""), signal.SIGKILL)
    read_all(connector)
    why = (
        r"SIGKILL was neither ours nor the kernel's for want of memory; its largest process had \d+ MiB at most"
        r"|memory probably ran out \(the kernel has ended .*"
    )
    assert re.fullmatch(f"was ended by signal 9: ({why})", report_of(connector).how_it_ended)


@pytest.mark.parametrize(
    ("more", "counted"),
    [
        (
            "oom_kills 2\npeak 1073741824",
            " (the kernel has ended 2 for that meanwhile); its largest process had 1,024 MiB at most",
        ),
        ("peak 0", ""),
    ],
    ids=["counted", "not_counted"],
)
@pytest.mark.parametrize("code", [-9, 137])
def test_that_the_kernel_wanted_memory_is_named(more: str, counted: str, code: int) -> None:
    report = GuardianReport.read(f"started 7\n{more}\nexited {code}\n".encode())
    assert report.reason(Permissions(), stopped=False) == (
        f"memory probably ran out{counted}; give the machine or the container more, or read less at once"
    )
    assert report.reason(Permissions(), stopped=True) == ""


@pytest.mark.nightly
def test_a_sandbox_has_the_same_limits(tmp_path: Path) -> None:
    require_bubblewrap()
    connector = start(local(tmp_path, _limits(megabytes=200, sandbox=True)), "eat_memory")
    read_all(connector)
    assert _is_over_memory(report_of(connector), 200)
    connector = start(local(tmp_path, _limits(seconds=1, sandbox=True)), "talk_for_ever")
    read_all(connector)
    assert "it ran for more than 1 s (limits: timeout_seconds" in report_of(connector).how_it_ended


@pytest.mark.docker
@pytest.mark.everyday("test_a_container_has_the_same_limit_of_memory")
class TestContainers:
    def test_a_container_has_the_same_limit_of_memory(self, fake_image: Image) -> None:
        report = self._ended(fake_image, "eat_memory", _limits(megabytes=64))
        assert re.fullmatch(
            r"was ended by signal 9: (perhaps )?it took more memory than 64 MiB "
            r"\(limits: max_memory; raise that, or have it read less at once\)",
            report.how_it_ended,
        )
        assert report.signal == signal.SIGKILL

    def test_a_container_has_the_same_limit_of_time(self, fake_image: Image) -> None:
        _check_over_time(self._ended(fake_image, "talk_for_ever", _limits(seconds=3)), 3)

    def test_a_deaf_container_is_killed_once_its_time_is_over(self, fake_image: Image) -> None:
        report = self._ended(fake_image, "ignore_sigterm", _limits(seconds=3))
        assert (report.signal, report.is_over_limit) == (signal.SIGKILL, True)
        assert "it ran for more than 3 s" in report.how_it_ended

    def _ended(self, image: Image, behaviour: str, options: LaunchOptions) -> ExitReport:
        launcher = DockerLauncher(image.launched(), _ALONE, owner=ContainerOwner({"test": image.test}), options=options)
        connector = start(launcher, behaviour)
        read_all(connector)
        report = report_of(connector)
        until(lambda: image.leftovers() == [], "the container is gone")
        return report
