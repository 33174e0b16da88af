"""Looks for secrets of the config in what a connector writes."""

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from dagster_airbyte_proto.certification.evidence import Leak
from dagster_airbyte_proto.masking import Mask
from dagster_airbyte_proto.sync.run_log import RunLog, ignore_line

_MAX_LEAKS = 100
_MAX_KEPT_CHARACTERS = 1 << 20
_NO_MASK = Mask(())


class SecretWatch:
    """Collects leaks. Several threads may use it; `run` names the run that is on.

    A connector may log a new token before we know that it is a secret. So the texts of the run that is on are kept, the
    newest of them, and looked at again when the mask grows.
    """

    def __init__(self) -> None:
        self.mask = _NO_MASK
        self.run = ""
        self._leaks: list[Leak] = []
        self._kept: deque[tuple[str, str]] = deque()
        self._kept_characters = 0
        # Held while a text is looked at: else one could pass between the old mask and the second look.
        self._lock = threading.RLock()

    @property
    def leaks(self) -> tuple[Leak, ...]:
        return tuple(self._leaks)

    def begin(self, run: str) -> None:
        """Begins a run."""
        with self._lock:
            self.run = run
            self._kept.clear()
            self._kept_characters = 0

    def extend(self, mask: Mask) -> None:
        """Uses a mask that hides more, also for what this run has written already."""
        with self._lock:
            self.mask = mask
            kept = tuple(self._kept)
            self._kept.clear()
            self._kept_characters = 0
            for text, where in kept:
                self.look(text, where)

    def look(self, text: str, where: str) -> None:
        """Notes a leak if the text has a secret."""
        with self._lock:
            masked = self.mask.text(text)
            if masked != text:
                self.note(masked, where)
                return
            self._kept.append((text, where))
            self._kept_characters += len(text)
            while self._kept_characters > _MAX_KEPT_CHARACTERS:
                self._kept_characters -= len(self._kept.popleft()[0])

    def note(self, masked: str, where: str) -> None:
        """Notes a leak."""
        with self._lock:
            if len(self._leaks) < _MAX_LEAKS:
                self._leaks.append(Leak(f"{self.run}, {where}", masked))

    def look_through(self, output: bytes, may_have_secrets: Callable[[bytes], bool]) -> None:
        """The same for each line of stdout, but those that may have secrets: a new config has them by its nature."""
        if self.mask.data(output) != output:
            for number, line in enumerate(output.splitlines(), 1):
                if not may_have_secrets(line):
                    self.look(line.decode(errors="replace"), f"line {number} of stdout")


class WatchedLog(RunLog):
    """A run's log through which the connector's stderr passes before it is masked."""

    def __init__(
        self, folder: Path, run_id: str, *, watch: SecretWatch, on_line: Callable[[str, str], None] = ignore_line
    ) -> None:
        super().__init__(folder, run_id, on_line=on_line)
        self._watch = watch

    def write(self, level: str, text: str) -> None:
        if level == "STDERR":
            self._watch.look(text, "stderr")
        super().write(level, text)
