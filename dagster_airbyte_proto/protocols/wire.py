"""A description of record lines, by which runs of them go to the columnar parser without a look at each record."""

import re
from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

from dagster_airbyte_proto.model import FieldPath


class RecordWire(NamedTuple):
    """The format of a protocol's record lines.

    - `head` matches the beginning of a record line, up to and including the stream. Lines that begin with exactly the
      same bytes are records of the same stream: they form a run, and go to the parser together.
    - Group `stream` of the head is the stream's name as a JSON string with its quotes. Group `namespace` likewise, or
      `null`, or absent if the namespace comes after the data: then the namespace column of the parsed lines decides.
    - If the head has a group `typed` that did not match, the head alone does not prove that the line is a record: the
      line must end with one of `tails`, newline included.
    - `known_members` matches the members of a head that need not be parsed again once the head is known, each with the
      comma after it.

    The paths locate members in the parsed line. `emitted_at` is a number of milliseconds, or optional text (RFC 3339).
    `version` is an optional whole number: the version of the stream's rows that the record belongs to.
    """

    head: re.Pattern[bytes]
    known_members: re.Pattern[bytes]
    type: FieldPath
    data: FieldPath
    emitted_at: FieldPath
    namespace: FieldPath
    stream: FieldPath
    changes: FieldPath
    tails: tuple[bytes, ...] = ()
    emitted_at_is_text: bool = False
    version: FieldPath = ()

    def match_head(self, text: bytes, start: int, end: int) -> re.Match[bytes] | None:
        """The head of the line `text[start:end]`; None if the line cannot belong to a run."""
        head = self.head.match(text, start, end)
        if head is None or self.is_conclusive(head) or text.endswith(self.tails, start, end):
            return head
        return None

    def is_conclusive(self, head: re.Match[bytes]) -> bool:
        """True if this head alone proves that the line is a record; otherwise the end of the line decides."""
        return not self.tails or head["typed"] is not None

    def blank_known_members(self, head: bytes) -> bytes:
        """Returns the head with spaces in place of the known members. The length stays, so that no offset moves."""
        return self.known_members.sub(lambda member: b" " * len(member[0]), head)

    def count_complete(self, text: bytes, places: Sequence[int]) -> int:
        """Counts the lines, from the first on, that end as a record does, up to the first that does not.

        The lines begin at `places`; each ends where the next begins.
        """
        ends = (text.endswith(self.tails, start, end) for start, end in pairwise(places))
        return sum(takewhile(bool, ends))
