"""Turns an exception that nobody foresaw into the error of the one stream in whose rows it arose."""

import traceback
from pathlib import Path

from dagster_airbyte_proto.errors import InternalError, TransformError

_PACKAGE = Path(__file__).parents[1]


def staging_fault(stream: str, error: Exception) -> InternalError:
    """Returns the error of a stream whose rows could not be staged."""
    return stream_fault(stream, error, "staging its rows", "none of its rows since its last load were written")


def stream_fault(stream: str, error: Exception, doing: str, effect: str) -> InternalError:
    """Returns the error of a stream on which our code failed, with the place in it."""
    # Without the exception's message: it may quote a value of a record.
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _PACKAGE in Path(frame.filename).parents]
    where = f" in {Path(frames[-1].filename).relative_to(_PACKAGE)}, line {frames[-1].lineno}" if frames else ""
    return InternalError(
        doing,
        f"{type(error).__name__}{where}: {effect}",
        remedy="This is a bug. Please report it with the output of `airbyte-proto version`. The other streams go on;"
        " exclude this one, or the column that is the cause, until it is fixed.",
        stream=stream,
    )


def transform_fault(stream: str, error: TransformError) -> TransformError:
    """Returns the error of a stream whose transform failed."""
    return type(error)(error.doing, error.found, remedy=error.remedy, stream=stream, retryable=error.retryable)
