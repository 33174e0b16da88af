"""The input of a destination: batches in pieces of any size, and the positions that records prove."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.errors import ConnectorError, ProtocolViolation
from dagster_airbyte_proto.launchers.wasm.host.inbox import ROOM_BYTES, Inbox, records_processed
from dagster_airbyte_proto.protocols.rapidbyte.messages import ProvedPosition, line

_SIZES = st.lists(st.integers(min_value=1, max_value=9), min_size=1, max_size=6)


def _input(sizes: list[int]) -> bytes:
    """A batch of so many rows each, as long as its number of rows, and a position after each."""
    written, sent = b"", 0
    for size in sizes:
        sent += size
        written += line("batch", stream="s", rows=size, bytes=size) + b"\n" * size
        written += line("position", plan="p", rows=100 + sent)
    return written


@given(_SIZES, st.integers(min_value=1, max_value=200), st.integers(min_value=0, max_value=60))
def test_records_prove_the_positions_before_them(sizes: list[int], step: int, records: int) -> None:
    inbox, written = Inbox(), _input(sizes)
    for place in range(0, len(written), step):
        assert inbox.feed(memoryview(written)[place : place + step]) == len(written[place : place + step])
    taken = [inbox.next() for _ in sizes]
    assert taken == [b"\n" * size for size in sizes]
    assert inbox.is_waited_for
    inbox.is_closed = True
    assert (inbox.next(), inbox.is_waited_for) == (None, False)
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    covered = [end for end in ends if end <= records]
    assert inbox.is_ahead(records) is (records > sum(sizes))
    found = inbox.proved(records)
    assert found == (ProvedPosition("p", 100 + covered[-1]) if covered else None)
    assert inbox.proved(records) is None


@pytest.mark.parametrize(
    ("covered", "written", "failed", "shown", "found"),
    [
        (5, 5, 0, 0, ProvedPosition("p", 105)),
        (4, 4, 1, 1, ProvedPosition("p", 105)),
        (4, 4, 1, 0, ProvedPosition("p", 105, failed=1)),
        (5, 4, 1, 1, ProvedPosition("p", 105)),  # It counts what it rejected.
        (3, 4, 1, 1, None),  # A row that it says is written lies behind its last checkpoint.
        (4, 4, 0, 0, None),  # A row is missing.
        (0, 0, 0, 0, None),
    ],
)
def test_a_good_end_proves_the_rest_if_its_counts_add_up(
    covered: int, written: int, failed: int, shown: int, found: ProvedPosition | None
) -> None:
    inbox = Inbox()
    inbox.feed(_input([2, 3]))
    inbox.is_closed = True
    while inbox.next():
        pass
    inbox.proved(covered)
    # A position that a checkpoint has proved already is not proved again.
    assert inbox.proved_by_end(written, failed, shown) == (None if covered == 5 else found)


def test_a_run_that_leaves_batches_proves_nothing_by_its_end() -> None:
    inbox = Inbox()
    inbox.feed(_input([2, 3]))
    inbox.next()
    inbox.is_closed = True
    assert inbox.proved_by_end(2, 0, 0) is None


def test_once_a_run_is_over_no_batch_comes_in() -> None:
    inbox = Inbox()
    inbox.feed(line("batch", stream="s", rows=1, bytes=2) + b"\n")
    assert inbox.has_untaken  # Also while it comes in.
    inbox.feed(b"\n")
    assert inbox.next() and not inbox.has_untaken
    inbox.is_over = True
    assert not inbox.is_waited_for
    inbox.feed(line("position", plan="p", rows=101))
    with pytest.raises(ConnectorError, match="its run has ended"):
        inbox.feed(_input([1]))


def test_it_has_room_until_batches_wait() -> None:
    inbox = Inbox()
    assert inbox.has_room
    inbox.feed(line("batch", stream="s", rows=1, bytes=ROOM_BYTES) + bytes(ROOM_BYTES))
    assert not inbox.has_room
    inbox.next()
    assert inbox.has_room


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(ProtocolViolation, match="no message"):
        Inbox().feed(b"{\n")
    with pytest.raises(ProtocolViolation, match="a line of over"):
        Inbox().feed(b"x" * (1 << 18))


@pytest.mark.parametrize(
    ("checkpoint", "records"),
    [
        ({"records_processed": 3}, 3),
        ({"protocol_version": "4", "payload": {"records_processed": 4}}, 4),
        ({"id": 7}, 0),
        ({"records_processed": True}, 0),
        ({"records_processed": -1}, 0),
        ({"records_processed": "3"}, 0),
    ],
)
def test_a_checkpoint_says_how_many_records_are_in(checkpoint: dict[str, object], records: int) -> None:
    assert records_processed(checkpoint) == records
