"""Counts the kills and faults of a soak, and prints them."""

import sys
import threading
import time
from collections import Counter


class Tally:
    """The counts of all environments of a soak."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self.kills: Counter[str] = Counter()
        self.late = 0
        self.recoveries = self.sweeps = 0
        self.lost = self.doubled = 0
        self.faults: list[str] = []

    @property
    def goes_on(self) -> bool:
        return self.kills.total() < self._wanted and not self.faults

    def stop(self) -> None:
        """Ends the soak: an environment broke, or somebody pressed Ctrl-C."""
        self._wanted = 0

    def killed(self, kill_method: str) -> None:
        with self._lock:
            self.kills[kill_method] += 1
            if self.kills.total() % max(1, self._wanted // 40) == 0:
                tell(f"{time.monotonic() - self._began:6.0f} s  {self}")

    def came_late(self) -> None:
        with self._lock:
            self.late += 1

    def recovered(self, points: list[str]) -> None:
        """Counts the recovery work of a sync, by the points that it reached."""
        with self._lock:
            self.recoveries += points.count("recover.begun")
            self.sweeps += points.count("recover.swept")

    def fault(self, text: str, census: tuple[int, int]) -> None:
        with self._lock:
            self.faults.append(text)
            self.lost += census[0]
            self.doubled += census[1]
            tell(f"FAULT {text}")

    def __str__(self) -> str:
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(self.kills.items()))
        return (
            f"kills {self.kills.total()} ({kinds}; {self.late} came too late), recoveries {self.recoveries}, "
            f"sweeps {self.sweeps}, lost {self.lost}, doubled {self.doubled}"
        )


def tell(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
