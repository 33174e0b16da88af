"""What did not fit: entries of `_airbyte_meta.changes`, kept for the few rows that have any."""

from collections import defaultdict

NULLED = "NULLED"
TYPECAST_ERROR = "DESTINATION_TYPECAST_ERROR"
SIZE_LIMITATION = "DESTINATION_FIELD_SIZE_LIMITATION"


class Misfit(ValueError):
    """A value that its column cannot hold. `reason` is a word of the protocol's."""

    def __init__(self, reason: str = TYPECAST_ERROR) -> None:
        self.reason = reason
        super().__init__(reason)


class Changes:
    """The values of one batch that were nulled, by row."""

    def __init__(self) -> None:
        self.by_row: defaultdict[int, list[dict[str, str]]] = defaultdict(list)

    def nulled(self, row: int, field: str, reason: str = TYPECAST_ERROR) -> None:
        self.by_row[row].append({"field": field, "change": NULLED, "reason": reason})
