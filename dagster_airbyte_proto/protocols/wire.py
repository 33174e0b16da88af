"""How record lines look, so that whole runs of them go to the parser without being parsed one by one."""

import re
from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

from dagster_airbyte_proto.model import FieldPath


class RecordShape(NamedTuple):
    """How records look on the wire.

    `head` matches how a record's line begins, as far as it tells the stream: lines that begin with the very same bytes
    are records of the same stream, and go to the parser as one run. Its group `stream` is the stream's name as a JSON
    string with its quotes, its group `namespace` likewise or `null`, or absent where the namespace stands behind the
    data: then the namespace column of the parsed lines decides. Where it has a group `typed` that did not match, the
    head does not tell that the line is a record, and one of `tails` must, newline included. `told` matches, in a head,
    the members that nobody needs to read again once it was seen, each with the comma behind it.

    The paths say where in the parsed line things stand. `emitted_at` is a number of milliseconds, or text (RFC 3339)
    that need not be there. `version` is a whole number that may be missing too: which version of the stream's rows the
    record is of.
    """

    head: re.Pattern[bytes]
    told: re.Pattern[bytes]
    type: FieldPath
    data: FieldPath
    emitted_at: FieldPath
    namespace: FieldPath
    stream: FieldPath
    changes: FieldPath
    tails: tuple[bytes, ...] = ()
    emitted_at_is_text: bool = False
    version: FieldPath = ()

    def head_of(self, text: bytes, start: int, end: int) -> re.Match[bytes] | None:
        """The head of the line `text[start:end]`, if that can be of a run."""
        head = self.head.match(text, start, end)
        if head is None or self.settles(head) or text.endswith(self.tails, start, end):
            return head
        return None

    def settles(self, head: re.Match[bytes]) -> bool:
        """Whether a line that begins so is of a run, however it ends."""
        return not self.tails or head["typed"] is not None

    def blanked(self, head: bytes) -> bytes:
        """The head, as long as it was, with spaces for what it has told."""
        return self.told.sub(lambda member: b" " * len(member[0]), head)

    def ending_right(self, text: bytes, places: Sequence[int]) -> int:
        """How many of the lines that begin at `places`, each of which ends where the next begins, end as a record does,
        up to the first that does not."""
        ends = (text.endswith(self.tails, start, end) for start, end in pairwise(places))
        return sum(takewhile(bool, ends))
