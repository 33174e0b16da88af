"""A stand-alone program that runs one connector and makes sure that none of its processes outlives us (its owner).

`local/launcher.py` starts it under `python -I -S`, outside the package. So it imports only the standard library, and
little of that, to start fast.

Why there is a process between us and the connector (13 ms and 10 MB; a connector takes seconds to start):
- PR_SET_PDEATHSIG alone kills the direct child, not what that child forked. It also fires when the *thread* that
  forked ends, which in a program with threads may happen at any time. The guardian has one thread.
- Setting it takes a `preexec_fn`, which may deadlock in a program with threads. The guardian may fork safely.
- Only the parent can safely kill by process id: for anybody else the id may already name another process. So we ask the
  guardian by a byte in a pipe, and it signals before it reaps.

How it notices our death, kill -9 included: the control pipe, whose only writer we are, ends; and on Linux the pidfd of
our process fires, even if a process that we forked holds a copy of the pipe.

How it finds every process of the connector: it made the process group, and as the subreaper it becomes the parent of
every orphan of that tree, also of those that left the group. If the guardian itself is killed, PR_SET_PDEATHSIG kills
the connector.

A connector in a sandbox is a child of `bwrap`, our own child, which ends at SIGTERM together with all that is in the
sandbox. So SIGTERM goes to the others of its group only. It reports a signal as a shell does, by 128 and its number.

How it holds the connector to its limits: see `_MemoryMeter` for memory. After its time it gets SIGTERM and the grace of
any stop. Both hold also while our owner is busy or halted.
"""

import ctypes
import os
import select
import shutil
import signal
import sys
import time
from contextlib import suppress
from typing import NamedTuple

STOP = b"T"
SANDBOXED = "sandboxed"
OVER_MEMORY, OVER_TIME = "over_memory", "over_time"
_PARENT, _GROUP = 1, 2
"""Fields of /proc/N/stat, counted from behind the program's name."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SIGNALLED = 128
_KILL_SECONDS = 5.0
"""How long killed processes may take to end. One in an uninterruptible wait (a dead network disk) may never end."""
_DYING_SECONDS = 2.0
"""How long an owner that closed the pipe may take to die. It takes milliseconds; a failed start waits for all of it."""
_NEVER = float("inf")
_LONGEST_WAIT_SECONDS = 86_400.0
"""`poll` counts its milliseconds in 31 bits."""
_BYTES_A_SECOND = 4 << 30
"""As fast as programs fill memory: a thread fills 2 to 3 GB a second."""
_LOOK_SECONDS = (0.02, 1.0)
_LOOK_SHARE = 20
"""A look costs 20 µs for each process of the machine. So the next one comes no sooner than after twenty times that."""
_HELD = (b"RssAnon:", b"RssShmem:", b"VmSwap:")
_HELD_ALONE = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")
"""The same, with the pages that processes share divided among them. The kernel walks all pages for it: 16 ms a GB."""


class _Task(NamedTuple):
    """`memory_bytes` and `seconds` are limits; 0 is none."""

    control: int
    report: int
    owner: int
    grace_seconds: float
    memory_bytes: int
    seconds: float
    folder: str
    is_sandboxed: bool
    command: list[str]


class _MemoryMeter:
    """Looks at the memory that the connector's processes hold together, the sooner the closer it is to its limit.

    What counts is what the kernel can only get back by ending them: anonymous pages and shared memory, in RAM or
    swapped out. Pages of files (programs, mapped databases) do not. Two looks in a row have to find too much: while one
    process starts another by vfork, both have one memory, and it counts twice.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.held_bytes = 0
        self.next_look = time.monotonic() if limit_bytes else _NEVER
        self._limit_bytes = limit_bytes
        self._was_over = False

    def is_over(self) -> bool:
        """Takes a look."""
        began = time.process_time()
        processes = _below(os.getpid())
        self.held_bytes = sum(_held(each, "status", _HELD) or 0 for each in processes)
        if self.held_bytes > self._limit_bytes:
            # Forked processes share most of their pages, which counted for each of them.
            self.held_bytes = sum(
                _held(each, "smaps_rollup", _HELD_ALONE) or _held(each, "status", _HELD) or 0 for each in processes
            )
        cost = time.process_time() - began
        is_over = self.held_bytes > self._limit_bytes
        soonest, latest = _LOOK_SECONDS
        reached_in = max(0, self._limit_bytes - self.held_bytes) / _BYTES_A_SECOND
        self.next_look = time.monotonic() + min(latest, max(soonest, cost * _LOOK_SHARE, reached_in))
        was_over, self._was_over = self._was_over, is_over
        return is_over and was_over


def main(arguments: list[str]) -> None:
    control, report, owner, grace_seconds, memory_bytes, seconds, folder, sandboxed, *command = arguments
    task = _Task(
        int(control), int(report), int(owner), float(grace_seconds), int(memory_bytes), float(seconds),
        folder, sandboxed == SANDBOXED, command,
    )  # fmt: skip
    oom_kills = _oom_kills()
    for descriptor in (task.control, task.report):
        os.set_inheritable(descriptor, False)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # A service manager signals every process of a service at once; only our owner decides whether the connector ends.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    wake = _wake_on_child()
    child = _start(task)
    if child is not None:
        _release_standard_streams()
        _watch(task, child, wake)
        code, peak_bytes = _end_all(child, wake)
        if task.is_sandboxed and _SIGNALLED < code < _SIGNALLED + signal.NSIG:  # 255 is a code, and no signal
            code = _SIGNALLED - code
        if oom_kills is not None:
            _report_line(task.report, f"oom_kills {(_oom_kills() or oom_kills) - oom_kills}")
        _report_line(task.report, f"peak {peak_bytes}")
        _report_line(task.report, f"exited {code}")
    if _owner_has_died(task):  # A living owner removes the folder itself, after it has read the rewritten config.
        shutil.rmtree(task.folder, ignore_errors=True)


def _wake_on_child() -> int:
    wake, written_by_signal = os.pipe()
    for descriptor in (wake, written_by_signal):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(written_by_signal, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return wake


def _start(task: _Task) -> int | None:
    """Starts the connector and reports to the owner. Returns its process id; None if it could not be executed."""
    failure, written_by_child = os.pipe()
    guardian = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            _become_connector(task.command, guardian)
        except OSError as error:
            os.write(written_by_child, str(error.errno).encode())
        finally:
            os._exit(127)
    os.close(written_by_child)
    error_number = os.read(failure, 32).decode()
    os.close(failure)
    if error_number:
        os.waitpid(child, 0)
        _report_line(task.report, f"failed {error_number}")
        return None
    _report_line(task.report, f"started {child}")
    return child


def _become_connector(command: list[str], guardian: int) -> None:
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guardian:
        os._exit(127)
    # Python ignores some signals, and our parent may ignore or block others: the connector gets the defaults.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.execv(command[0], command)  # noqa: S606 - running the connector is the guardian's purpose


def _release_standard_streams() -> None:
    """Closes our copies of the connector's streams.

    Otherwise its stdout would stay open after the connector closed it.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)


def _watch(task: _Task, child: int, wake: int) -> None:
    """Waits until the connector has ended or must be killed."""
    poll = select.poll()
    poll.register(task.control, select.POLLIN)
    poll.register(wake, select.POLLIN)
    owner = _owner_descriptor(task.owner)
    if owner is not None:
        poll.register(owner, select.POLLIN)
    memory = _MemoryMeter(task.memory_bytes)
    over_at = time.monotonic() + task.seconds if task.seconds else _NEVER
    killed_at = _NEVER
    while os.getppid() == task.owner and not _has_ended(child):
        now = time.monotonic()
        if now >= killed_at:
            return
        if now >= memory.next_look and memory.is_over():
            _report_line(task.report, f"{OVER_MEMORY} {memory.held_bytes}")
            return
        if now >= over_at:
            _report_line(task.report, f"{OVER_TIME} {task.seconds}")
            over_at, killed_at = _NEVER, now + task.grace_seconds
            _terminate(task, child)
        ready = {each for each, _ in poll.poll(_milliseconds_until(min(killed_at, over_at, memory.next_look)))}
        if owner in ready:
            return
        if wake in ready:
            _drain(wake)
        if task.control in ready:
            if not os.read(task.control, 64):
                return
            if killed_at == _NEVER:
                over_at, killed_at = _NEVER, time.monotonic() + task.grace_seconds
                _terminate(task, child)


def _milliseconds_until(moment: float) -> float | None:
    if moment == _NEVER:
        return None
    return min(max(0.0, moment - time.monotonic()), _LONGEST_WAIT_SECONDS) * 1000 + 1


def _terminate(task: _Task, child: int) -> None:
    if task.is_sandboxed:
        _terminate_others_of_group(child)
    else:
        _signal_group(child, signal.SIGTERM)


def _owner_has_died(task: _Task) -> bool:
    """Waits a moment for a dying owner: the kernel closes a process's files before it gives its children a new parent.

    A living owner keeps the pipe open until we have ended, unless it failed to start us: only then does this wait cost.
    """
    deadline = time.monotonic() + _DYING_SECONDS
    while os.getppid() == task.owner:
        if not _is_closed(task.control) or time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _is_closed(control: int) -> bool:
    poll = select.poll()
    poll.register(control, 0)  # asks for nothing, so only for the end
    return any(events & select.POLLHUP for _, events in poll.poll(0))


def _owner_descriptor(owner: int) -> int | None:
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(owner)
    except OSError:  # an old kernel, a sandbox, or a dead owner: getppid detects the last
        return None


def _has_ended(child: int) -> bool:
    """True if the connector has ended.

    Does not reap it, so that its process id and group id are not reused. Reaps others.
    """
    while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
        if found.si_pid == child:
            return True
        os.waitpid(found.si_pid, 0)
    return False


def _end_all(child: int, wake: int) -> tuple[int, int]:
    """Kills the rest of the process tree. Returns the connector's exit code, negative for a signal, and the most memory
    that one of its processes had in RAM; 0 if that is not known."""
    deadline = time.monotonic() + _KILL_SECONDS
    while time.monotonic() < deadline:
        _signal_group(child, signal.SIGKILL)
        others = _children() - {child}
        for process in others:
            with suppress(PermissionError):  # a program of another user
                os.kill(process, signal.SIGKILL)
            os.waitpid(process, os.WNOHANG)
        if not others and _has_ended(child):
            break
        select.select([wake], [], [], 0.02)
        _drain(wake)
    found, status, usage = os.wait4(child, os.WNOHANG)
    if not found:
        return -signal.SIGKILL, 0
    return os.waitstatus_to_exitcode(status), usage.ru_maxrss << 10 if sys.platform == "linux" else 0


def _children() -> set[int]:
    """Finds our children by the parent id in /proc/N/stat: not every kernel has /proc/N/task/N/children."""
    return _processes(_PARENT, os.getpid())


def _below(process: int) -> list[int]:
    """All processes that a process started, and those that these started."""
    children: dict[int, list[int]] = {}
    with suppress(OSError):
        for entry in os.scandir("/proc"):
            if entry.name.isdigit() and (parent := _stat_field(entry.path, _PARENT)) is not None:
                children.setdefault(parent, []).append(int(entry.name))
    found = [process]
    for each in found:
        found += children.get(each, ())
    return found[1:]


def _held(process: int, file: str, fields: tuple[bytes, ...]) -> int | None:
    """The sum of these fields of a file about a process; None if they cannot be read, or are not there."""
    try:
        with open(f"/proc/{process}/{file}", "rb") as about:  # noqa: PTH123
            found = [int(line.split()[1]) for line in about if line.startswith(fields)]
    except OSError:  # it has ended, or is another user's
        return None
    return sum(found) << 10 if len(found) == len(fields) else None


def sees_memory() -> bool:
    """Whether this system shows the memory of processes. macOS does not."""
    return _held(os.getpid(), "status", _HELD) is not None


def _oom_kills() -> int | None:
    """The number of processes of this machine that the kernel has ended because memory ran out."""
    with suppress(OSError), open("/proc/vmstat", "rb") as file:  # noqa: PTH123
        for line in file:
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
    return None


def _terminate_others_of_group(child: int) -> None:
    for process in _processes(_GROUP, child) - {child}:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGTERM)


def _processes(field: int, value: int) -> set[int]:
    """The processes with this value in a field of /proc/N/stat."""
    found = set[int]()
    with suppress(OSError):  # no /proc here: only the process group can be signalled
        for entry in os.scandir("/proc"):
            if entry.name.isdigit() and _stat_field(entry.path, field) == value:
                found.add(int(entry.name))
    return found


def _stat_field(process_folder: str, field: int) -> int | None:
    try:
        with open(f"{process_folder}/stat", "rb") as file:  # noqa: PTH123 - pathlib would double our start-up
            return int(file.read().rpartition(b")")[2].split()[field])
    except OSError:  # the process has ended meanwhile
        return None


def _signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # all gone; only zombies (macOS); programs of another user
        os.killpg(group, number)


def _drain(descriptor: int) -> None:
    with suppress(BlockingIOError):
        while os.read(descriptor, 4096):
            pass


def _report_line(report: int, line: str) -> None:
    with suppress(BrokenPipeError):  # the owner is dead; there is still the rest to kill
        os.write(report, line.encode() + b"\n")


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        _libc.prctl(option, value, 0, 0, 0)


_libc = ctypes.CDLL(None)

if __name__ == "__main__":
    main(sys.argv[1:])
