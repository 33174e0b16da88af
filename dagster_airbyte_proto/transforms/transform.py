"""A transform changes rows on their way from a source to a table or a destination: Arrow batches in, Arrow batches out.

- Pure: it neither reads, writes nor asks the clock. A transform belongs to one stream, one sync and one thread.
- A row of its result comes from one row of its input (`origins`), so each row keeps its metadata, and every row is
  counted: it lands, is rejected with a reason, or is dropped.
- Batches are cut anywhere, and a sync that failed is read again with other cuts. So a result must not depend on where
  a batch begins or ends.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from dagster_airbyte_proto.loads.load import TransformState

DROPPED = "dropped by a transform"
Positions = np.ndarray[tuple[int], np.dtype[np.int64]]


class RowShape(NamedTuple):
    """The columns of rows. `passed_on` maps a column to the column of the stream whose values it has, unchanged."""

    schema: pa.Schema
    passed_on: Mapping[str, str]

    @classmethod
    def of_input(cls, schema: pa.Schema) -> "RowShape":
        return cls(schema, {name: name for name in schema.names})


class Rows(NamedTuple):
    """A batch of rows. `is_deletion` marks the rows by which the source deletes their key; None if there are none."""

    batch: pa.RecordBatch
    is_deletion: pa.BooleanArray | None = None


class Rejection(NamedTuple):
    """Rows that a transform rejected, by their positions in its input.

    With the reason DROPPED they are dropped, and older rows of their keys stay as for any rejected row.
    """

    reason: str
    positions: Positions


def rejections(faults: Mapping[int, str], *, are_dropped: bool) -> Sequence[Rejection]:
    """Returns rejections of rows with these faults, by their positions in the input; one for all with the same
    reason."""
    by_reason: defaultdict[str, list[int]] = defaultdict(list)
    for position, reason in sorted(faults.items()):
        by_reason[DROPPED if are_dropped else reason].append(position)
    return [Rejection(reason, np.array(positions, np.int64)) for reason, positions in by_reason.items()]


class TransformedRows(NamedTuple):
    """The result of a transform. `origins` are the positions of its rows in the input, in ascending order.

    Rows of the input that are neither there nor among the rejections were dropped because they are none of the stream's
    any more: where rows have keys, the older rows of their keys go too.
    """

    batch: pa.RecordBatch
    origins: Positions
    rejections: Sequence[Rejection] = ()


class Transform(Protocol):
    """A transform of rows."""

    def shape(self, given: RowShape) -> RowShape:
        """Returns the columns of the result. Raises ConfigError where the transform does not fit the columns."""
        ...

    def transform(self, rows: Rows) -> TransformedRows:
        """Transforms a batch. Raises TransformError; then nothing of the batch may land."""
        ...


@runtime_checkable
class SupportsState(Protocol):
    """The part of a transform whose rows go to processes, which keep something from batch to batch."""

    @property
    def state(self) -> TransformState:
        """The state after the rows so far. Only `finish` makes it whole: a process may keep more at its end."""
        ...

    def finish(self) -> None:
        """Ends the process. Raises TransformError if it fails: then no row since the last `finish` may land."""
        ...

    def discard(self) -> None:
        """Ends the process, whose rows do not land."""
        ...


class TransformChain:
    """The transforms of a stream, one after the other."""

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self._transforms = tuple(transforms)

    @property
    def states(self) -> tuple[TransformState, ...]:
        """The states of its transforms after the rows so far. They count once these rows are in their table."""
        return tuple(each.state for each in self._transforms if isinstance(each, SupportsState))

    def finish(self) -> None:
        """Ends the processes of its transforms: all rows so far are answered, and `states` is whole. Raises
        TransformError; then no row since the last `finish` may land."""
        for each in self._transforms:
            if isinstance(each, SupportsState):
                each.finish()

    def discard(self) -> None:
        """Ends the processes of its transforms. Rows since the last `finish` do not land."""
        for each in self._transforms:
            if isinstance(each, SupportsState):
                each.discard()

    def shape(self, given: RowShape) -> RowShape:
        return reduce(lambda shape, each: each.shape(shape), self._transforms, given)

    def transform(self, rows: Rows) -> TransformedRows:
        origins, rejections = np.arange(rows.batch.num_rows), list[Rejection]()
        for each in self._transforms:
            found = each.transform(rows)
            rejections += (Rejection(reason, origins[positions]) for reason, positions in found.rejections)
            origins = origins[found.origins]
            is_deletion = None if rows.is_deletion is None else rows.is_deletion.take(pa.array(found.origins))
            rows = Rows(found.batch, is_deletion)
        return TransformedRows(rows.batch, origins, rejections)
