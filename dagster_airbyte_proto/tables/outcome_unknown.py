"""The commit point of a table: what goes wrong behind it leaves the outcome of a commit unknown."""

from collections.abc import Iterator
from contextlib import contextmanager

from dagster_airbyte_proto.errors import CommitUnknown, ProtoError


@contextmanager
def outcome_unknown(doing: str, stream: str | None) -> Iterator[None]:
    """Raises every error as CommitUnknown: the commit may have had its effect before the error.

    A writer that can still tell reads its log inside of this context, and raises its refusal after it.
    """
    try:
        yield
    except CommitUnknown:
        raise
    except Exception as error:  # Whatever it says: an error here is no refusal.
        found = error.found if isinstance(error, ProtoError) else str(error).strip().partition("\n")[0]
        raise CommitUnknown(doing, found or type(error).__name__, stream=stream) from error
