"""The input of a recorded run, when it is replayed: it compares what is written with what was recorded.

1. Lines are compared, each as soon as it is whole, and only one is held at a time. The first difference is an error
   that has its number and never its content.
2. Secrets are masked in the recording. Where it has `***`, anything may have been written.
3. Output is replayed no earlier than it came: only after the input that had been written before it was read. A
   destination's acknowledgement thus never comes before the rows that it covers.
4. If the connector ended before its input was closed, the recorded input may be cut anywhere. What is written past its
   end is then no difference: the connector has ended.
"""

import re
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.recordings.run_files import Turn
from dagster_airbyte_proto.masking import MASKED

# A masked number became a text: the quotes are the mask's, or they are those of a masked text.
_MASKED = re.compile(rb'"?' + re.escape(MASKED.encode()) + rb'"?')
_TURN_DECODER = msgspec.json.Decoder(Turn)


class RecordedInput:
    """Takes the input of a replayed run. `is_cut` if the recorded connector ended before its input was closed."""

    def __init__(self, stdin: BinaryIO, turns: BinaryIO, *, doing: str, is_cut: bool) -> None:
        self._stdin = stdin
        self._files = stdin, turns
        self._turns: Iterator[Turn] = map(_TURN_DECODER.decode, turns)
        self._next_turn = next(self._turns, None)
        self._released_lines = 0
        self._doing = doing
        self._is_cut = is_cut
        self._lines = 0
        self._pending: list[bytes] = []
        self.is_complete = False
        if is_cut:
            self._look_for_cut(b"")

    def write(self, data: bytes) -> None:
        """Takes input. Raises ConfigError at the first difference."""
        self._pending.append(data)
        if b"\n" in data:
            *lines, rest = b"".join(self._pending).split(b"\n")
            self._pending = [rest]
            for line in lines:
                self._compare(line + b"\n")
        if self._is_cut and not self.is_complete:
            self._look_for_cut(b"".join(self._pending))

    def close(self) -> None:
        """Ends the input. Raises ConfigError if it is not all of the recorded input."""
        if self.is_complete:
            return
        if rest := b"".join(self._pending):
            self._compare(rest)
        if not self.is_complete and self._stdin.readline():
            raise self._difference("the recording has it, and the input ends before it")
        self.is_complete = True

    def released_lines(self) -> int | None:
        """The number of output lines that came before more input was written; None if all may come."""
        if self.is_complete:
            return None
        while self._next_turn is not None and self._next_turn.stdin_lines <= self._lines:
            self._released_lines = self._next_turn.stdout_lines
            self._next_turn = next(self._turns, None)
        return self._released_lines

    def release(self) -> None:
        """Closes the recorded files."""
        for file in self._files:
            file.close()

    def _compare(self, line: bytes) -> None:
        if self.is_complete:
            return
        recorded = self._stdin.readline()
        if self._is_cut and not recorded.endswith(b"\n") and _matches(recorded, line, is_beginning=True):
            self.is_complete = True
        elif not recorded:
            raise self._difference("it was written, and the recording ends before it")
        elif _matches(recorded, line):
            self._lines += 1
        else:
            raise self._difference("it is not as it was recorded")

    def _look_for_cut(self, rest: bytes) -> None:
        """Notices that all of the recorded input is there, although its last line is not whole."""
        at = self._stdin.tell()
        recorded = self._stdin.readline()
        self._stdin.seek(at)
        if not recorded.endswith(b"\n"):
            self.is_complete = _matches(recorded, rest, is_beginning=True)

    def _difference(self, found: str) -> ConfigError:
        remedy = "Record it again, or write the same input."
        return ConfigError(self._doing, f"line {self._lines + 1} of the input differs: {found}", remedy=remedy)


def _matches(recorded: bytes, written: bytes, *, is_beginning: bool = False) -> bool:
    """True if a line was recorded so, or begins so."""
    first, *others = _MASKED.split(recorded)
    if not others:
        return written.startswith(recorded) if is_beginning else written == recorded
    if not written.startswith(first):
        return False
    at = len(first)
    for part in others if is_beginning else others[:-1]:
        if (found := written.find(part, at)) < 0:
            return False
        at = found + len(part)
    return is_beginning or written.endswith(others[-1], at)
