"""Who holds a lease: alive, dead, stopped, or of another machine."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from dagster_airbyte_proto.sync.process_identity import is_dead, this_process
from tests.support.needs import lacks
from tests.sync.shop import until


def name_of(pid: int) -> str:
    """The name that a process would give itself."""
    own, start = this_process(), "(started "
    with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - a file of the kernel
        started = stat.read().rpartition(")")[2].split()[19]
    head, _, tail = own.partition(start)
    return head.replace(f"pid {os.getpid()} ", f"pid {pid} ") + start + started + tail[tail.index(",") :]


def test_a_process_that_runs_is_not_dead_and_neither_is_a_stopped_one() -> None:
    assert not is_dead(this_process())
    with subprocess.Popen(["sleep", "60"]) as child:
        words = name_of(child.pid)
        child.send_signal(signal.SIGSTOP)
        until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_STOPPED, "a stopped process")
        assert not is_dead(words)
        child.kill()
        until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE, "a dead process")
        assert is_dead(words)
    assert is_dead(words)


def test_a_process_number_that_went_to_another_is_not_its_first_owner() -> None:
    before = this_process().replace("(started ", "(started 1")
    assert is_dead(before)


def test_of_other_machines_and_other_words_nothing_is_known() -> None:
    elsewhere = this_process()[:-9] + "00000000)"
    assert not is_dead(elsewhere.replace(f"pid {os.getpid()} ", "pid 999999999 "))
    assert not is_dead("somebody")


_HIDDEN = """
mount -t tmpfs none /proc/$1 || exit 77
exec "$2" -c "import os, sys; from dagster_airbyte_proto.sync.process_identity import is_alive
if int(sys.argv[2]): os.setuid(int(sys.argv[2]))
print(is_alive(sys.argv[1]))" "$3" "$4"
"""


@pytest.mark.parametrize("user", [0, 65534])
def test_a_process_that_the_kernel_hides_is_not_dead(user: int) -> None:
    """As under `hidepid`: nothing of it in /proc, and for another user no right to signal it either."""
    with subprocess.Popen(["sleep", "60"]) as child:
        words = [str(child.pid), sys.executable, name_of(child.pid), str(user)]
        command = ["unshare", "--mount", "sh", "-c", _HIDDEN, "sh", *words]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        child.kill()
    if ended.returncode in (1, 77) and "is_alive" not in ended.stderr:
        lacks("mounts", "no right to make a mount namespace")
    assert ended.stdout == "None\n", ended.stderr
