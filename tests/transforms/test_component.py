"""Rows that a component fills: what it may not change, and what it rejects."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from dagster_airbyte_proto.encoding.arrow_frames import as_sent
from dagster_airbyte_proto.errors import TransformError
from dagster_airbyte_proto.loads.load import TransformState
from dagster_airbyte_proto.model import ComponentSpec
from dagster_airbyte_proto.transforms import component
from dagster_airbyte_proto.transforms.component import ComponentReplies, ComponentTransform, RowExchange
from dagster_airbyte_proto.transforms.enrichment import ROW_NUMBER
from dagster_airbyte_proto.transforms.transform import Rows

_BATCH = pa.RecordBatch.from_pydict(
    {
        "id": [1, 2, 3],
        "phone": ["1", "2", "3"],
        "email": ["a@x", "b@x", "c@x"],
        "score": [0.5, float("nan"), None],
        "tags": [["a"], [], None],
        "at": pa.array([1, 2, None], pa.time64("us")),
    }
)


class _Component:
    """A component that answers each batch by a function."""

    name = "mask"
    state = TransformState("mask")

    def __init__(self, answer: Callable[[pa.RecordBatch], ComponentReplies]) -> None:
        self.transform = answer

    def exchange(self, *_: object) -> RowExchange:
        return self

    def as_sent(self, column: pa.Array) -> pa.Array:
        return as_sent(column)

    def finish(self) -> None: ...

    def discard(self) -> None: ...


def _transformed(answer: Callable[[pa.RecordBatch], ComponentReplies], on_error: str = "reject") -> pa.RecordBatch:
    spec = ComponentSpec(0, (("phone", "string"),), on_error)
    return ComponentTransform(spec, _Component(answer)).transform(Rows(_BATCH)).batch


def _with(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index(name), name, values)


def test_a_column_that_is_not_to_be_filled_may_not_change() -> None:
    def masks(batch: pa.RecordBatch) -> ComponentReplies:
        masked = pa.array(["***"] * batch.num_rows)
        return ComponentReplies([_with(_with(batch, "phone", masked), "email", masked)], {})

    with pytest.raises(TransformError, match=r"(?s)changed the column email, .* as it was.*Name email in"):
        _transformed(masks)


def test_rows_come_back_in_another_order_and_form() -> None:
    def reversed_rows(batch: pa.RecordBatch) -> ComponentReplies:
        back = batch.take(pa.array([2, 1, 0]))
        back = _with(back, "id", back.column("id").cast(pa.int32()))
        for name in ("tags", "at"):  # They go out as text.
            back = _with(back, name, as_sent(back.column(name)))
        return ComponentReplies([_with(back, "phone", pa.array(["c", "b", "a"]))[:2], back[2:]], {})

    assert _transformed(reversed_rows).column("phone").to_pylist() == ["1", "b", "c"]


def test_a_batch_may_have_no_row_that_it_takes() -> None:
    """The first one too, before the component has passed on a number."""

    def rejects(batch: pa.RecordBatch) -> ComponentReplies:
        return ComponentReplies((), dict.fromkeys(batch.column(ROW_NUMBER).to_pylist(), "no such country"))

    spec = ComponentSpec(0, (("phone", "string"),), "reject")
    found = ComponentTransform(spec, _Component(rejects)).transform(Rows(_BATCH))
    assert (found.batch.num_rows, found.batch.schema.names[-1]) == (0, "phone")
    assert [(each.reason, each.positions.tolist()) for each in found.rejections] == [("no such country", [0, 1, 2])]
    with pytest.raises(TransformError, match="3 rows of a batch have faults; the first: no such country"):
        _transformed(rejects, "fail")


def test_rows_that_are_made_of_one_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has all columns of the row that it comes from, and a number is enough to name that."""

    def repeats(batch: pa.RecordBatch) -> ComponentReplies:
        some = batch.select(["phone", ROW_NUMBER])
        return ComponentReplies([some, *[some[1:2]] * 20], {})

    assert _transformed(repeats).column("id").to_pylist() == [1, *[2] * 21, 3]
    monkeypatch.setattr(component, "MAX_MADE_BYTES", 100)
    with pytest.raises(TransformError, match="it made 23 rows of 3, which have more than 100 bytes"):
        _transformed(repeats)


def test_a_row_that_is_rejected_without_its_number_fails_its_stream_where_an_error_does() -> None:
    def rejects(batch: pa.RecordBatch) -> ComponentReplies:
        kept = batch.filter(pa.array([number != 1 for number in batch.column(ROW_NUMBER).to_pylist()]))
        return ComponentReplies([kept], {}, ["no such country"])

    assert _transformed(rejects).column("id").to_pylist() == [1, 3]
    with pytest.raises(TransformError, match="it rejected a row: no such country"):
        _transformed(rejects, "fail")
