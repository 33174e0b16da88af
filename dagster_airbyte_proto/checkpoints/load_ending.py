"""The ways in which a load ends: a run finds out what became of it, or a person says so (`loads resolve`)."""

from enum import StrEnum
from typing import NamedTuple


class LoadEnding(StrEnum):
    """The way in which a load ended. The names are stored."""

    PROMOTED = "promoted"
    RESOLVED_AS_LANDED = "resolved_as_landed"
    RESOLVED_AS_LOST = "resolved_as_lost"
    REFUSED = "refused"
    """All its tables refused it. Only older versions ended loads so: today such a load is promoted, and moves no state.
    """


class Resolution(NamedTuple):
    """A person's decision on a load whose outcome no table can show."""

    as_landed: bool
    who: str

    @property
    def ending(self) -> LoadEnding:
        return LoadEnding.RESOLVED_AS_LANDED if self.as_landed else LoadEnding.RESOLVED_AS_LOST

    def __str__(self) -> str:
        return f"resolved as {'landed' if self.as_landed else 'lost'} by {self.who}"
