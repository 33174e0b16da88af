"""The last words of the guardian about a connector: how it ended, and why, as far as anybody knows.

A SIGKILL that nobody of us sent is most often the kernel's, because memory ran out. It leaves no word to the parent of
its victim, but counts such ends for the whole machine: so the number is no proof, since another program may have been
ended meanwhile, and without it the signal came from somebody else.
"""

import signal
from typing import NamedTuple

from dagster_airbyte_proto.launchers.local.guardian import OVER_MEMORY, OVER_TIME
from dagster_airbyte_proto.launchers.permissions import Permissions, shown_size

_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""The second is how a shell reports it, which waited for the connector."""


class GuardianReport(NamedTuple):
    """`code` is negative for a signal; None if the guardian itself was killed.

    `over` is the limit for which it ended the connector, with the memory that it found then. `oom_kills` is how many
    processes the kernel ended meanwhile because memory ran out, None where it does not say that.
    """

    process: int
    code: int | None = None
    over: str = ""
    held_bytes: int = 0
    peak_bytes: int = 0
    oom_kills: int | None = None

    @classmethod
    def read(cls, lines: bytes) -> "GuardianReport":
        words = dict(line.split(" ", 1) for line in lines.decode().splitlines())
        return cls(
            int(words["started"]),
            int(words["exited"]) if "exited" in words else None,
            next((each for each in (OVER_MEMORY, OVER_TIME) if each in words), ""),
            int(words.get(OVER_MEMORY, 0)),
            int(words.get("peak", 0)),
            int(words["oom_kills"]) if "oom_kills" in words else None,
        )

    def reason(self, permissions: Permissions, *, stopped: bool) -> str:
        """The reason for the end, for `ExitReport`; none where its code or signal says all that is known."""
        if self.over == OVER_MEMORY:
            return permissions.over_memory(shown_size(self.held_bytes))
        if self.over == OVER_TIME:
            return permissions.over_time()
        return self._reason_of_kill() if self.code in _KILLED and not stopped else ""

    def _reason_of_kill(self) -> str:
        peak = f"; its largest process had {shown_size(self.peak_bytes)} at most" if self.peak_bytes else ""
        if self.oom_kills == 0:
            return f"SIGKILL was neither ours nor the kernel's for want of memory{peak}"
        counted = f" (the kernel has ended {self.oom_kills} for that meanwhile)" if self.oom_kills else ""
        return f"memory probably ran out{counted}{peak}; give the machine or the container more, or read less at once"
