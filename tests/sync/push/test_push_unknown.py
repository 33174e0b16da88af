"""Rows of which nobody knows whether the destination has them, in the modes in which a row that is sent twice is there
twice: they are kept and reported, no later push sends them by itself, and `--retry-unknown` sends them once more."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from dagster_airbyte_proto.errors import ConfigError, ProtoError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.sync.push.content.stream_encoder import StreamEncoder
from dagster_airbyte_proto.sync.push.plan.plan_rows import PlanBatch
from dagster_airbyte_proto.sync.push.push_context import LandedRows
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults
from tests.sync.push.pushed_table import PushedTable, Row, person

_Fault = tuple[dict[tuple[str, int | str], CallFault], Row]
"""The calls of store and tables that fail, and how the destination misbehaves."""
_CALLS = (
    "begin_delivery",
    "announce_rows",
    "acknowledge_rows",
    "announce",
    "commit",
    "promote",
    "deliveries",
    "states",
)
_OF_STORE: list[_Fault] = [
    ({(call, number): fault}, {})
    for fault in (CallFault.BEFORE, CallFault.AFTER)
    for call in _CALLS
    for number in (1, 2)
]
# The destination has the rows before its death and after it, and dies before, at and behind a batch's end.
_OF_DESTINATION: list[_Fault] = [({}, {"dies_after": rows}) for rows in (1, 4, 5, 6, 11, 20)]
_CASES = [
    (protocol, mode, echo)
    for protocol in ("airbyte", "singer")
    for mode in ("append", "insert")
    for echo in ("each", "end", "exit")
]
_CASES += [("airbyte", "append", "bare")]
_TELLING: list[_Fault] = [
    ({("acknowledge_rows", "*"): CallFault.BEFORE}, {}),
    ({("announce_rows", 2): CallFault.AFTER}, {}),
    ({}, {"dies_after": 6}),
]
_EVERY_TIME = (("airbyte", "append", "each"),)


@pytest.mark.parametrize(
    ("protocol", "mode", "echo"),
    [pytest.param(*case, marks=[] if case in _EVERY_TIME else [pytest.mark.nightly]) for case in _CASES],
)
def test_unknown_rows_are_kept_and_reported_and_wait_for_a_person(
    quick_folder: Path, protocol: str, mode: str, echo: str
) -> None:
    is_sweep = (protocol, mode, echo) not in _EVERY_TIME
    faults = [*_TELLING, *_OF_STORE, *_OF_DESTINATION] if is_sweep else _TELLING
    table = PushedTable(quick_folder, protocol=protocol, mode=mode)
    table.push["key"] = ["id"]
    says = {"bare": {"form": "bare"}, "exit": {"echo": "never"}}.get(echo, {"echo": echo})
    if echo == "exit":
        table.options["acknowledge"] = "exit"
    people: dict[int, Row] = {}
    sent_unknown: Counter[int] = Counter()
    told = 0
    for turn, (planned, misbehaviour) in enumerate(faults):
        where = f"{planned} {misbehaviour}"
        people |= {number: person(number) for number in range(100 * turn, 100 * turn + 20)}
        table.fill(list(people.values()))
        table.config = {**says, **misbehaviour}
        table.faults = CallFaults(planned)
        with suppress(ProtoError):
            report = table.contacts()
            assert report.sent == report.acknowledged + report.rejected + report.unknown, where
            assert report.unknown >= len(table.unknown_ids()) - 5, where  # a batch may be announced and not yet sent
        table.config, table.faults = {**says}, None
        unknown, at_death = table.unknown_ids(), len(table.received())
        if unknown:
            told += 1
            refused = table.contacts()
            assert (refused.status, refused.sent, refused.unknown) == ("unknown", len(unknown), len(unknown)), where
            assert f"{len(unknown)} rows were sent and not acknowledged" in (refused.error or ""), where
            assert len(table.received()) == at_death, where
            assert table.unknown_ids() == unknown, where
        sent_unknown.update(unknown)
        final = table.contacts(retries_unknown=True)
        assert (final.status, final.error) == ("complete", None), where
        times = Counter(row["id"] for row in table.received())
        assert times.keys() == people.keys(), where
        assert {number: count for number, count in times.items() if count > 1 + sent_unknown[number]} == {}, where
        assert table.delivered().keys() == people.keys(), where
        assert table.contacts().sent == 0, where
    assert told >= len(_TELLING)


def test_a_retry_that_sends_nothing_leaves_them_unknown(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, mode="append")
    table.fill([person(number) for number in range(20)])
    table.config |= {"dies_after": 7, "once": str(table.folder / "once")}
    unknown = table.contacts().unknown
    assert unknown > 0
    table.faults = CallFaults({("announce_rows", 1): CallFault.BEFORE})
    assert table.contacts(retries_unknown=True).unknown == unknown
    table.faults = None
    assert "were sent and not acknowledged" in (table.contacts().error or "")
    assert table.contacts(retries_unknown=True).status == "complete"


def _interrupted(folder: Path) -> PushedTable:
    """Rows are sent but 3 and 6, which cannot be. Those up to 4 are acknowledged, and 5 has arrived too."""
    table = PushedTable(folder, mode="append")
    score = {3: float("nan"), 6: float("nan")}
    table.fill([person(number, score=score.get(number, 1.0)) for number in range(20)])
    table.config |= {"dies_after": 6, "once": str(folder / "once")}
    report = table.contacts()
    assert (report.status, report.retryable) == ("unknown", False)
    assert f"`--unknown-landed N/{report.unknown}`" in (report.error or "")
    # How many batches were on their way is a matter of time.
    assert table.unknown_ids()[:5] == [5, 6, 7, 8, 9]
    assert [row["id"] for row in table.received()] == [0, 1, 2, 4, 5]
    return table


@pytest.mark.parametrize("has_landed_whole", [False, True])
def test_rows_that_have_landed_by_the_word_of_a_person_are_not_sent_again(
    quick_folder: Path, has_landed_whole: bool
) -> None:
    table = _interrupted(quick_folder)
    unknown = table.unknown_ids()
    landed = len(unknown) if has_landed_whole else 2
    report = table.contacts(unknown_landed=LandedRows(landed, len(unknown)))
    assert (report.status, report.unknown) == ("complete", 0)
    times = Counter(row["id"] for row in table.received())
    assert times == Counter(set(range(20)) - {3, 6} - ({*unknown} - {5} if has_landed_whole else set()))
    statuses = {number: row["_status"] for number, row in table.delivered().items()}
    assert statuses.keys() == set(range(20))
    assert {number for number, status in statuses.items() if status == "rejected"} == {3, 6}
    assert table.contacts().sent == 0


@pytest.mark.parametrize("seen", [4, 0])
def test_the_word_of_a_person_is_about_the_rows_that_they_have_seen(quick_folder: Path, seen: int) -> None:
    table = _interrupted(quick_folder)
    unknown = table.unknown_ids()
    refused = table.contacts(unknown_landed=LandedRows(0, seen))
    assert f"and {len(unknown)} are unknown" in (refused.error or "")
    assert table.unknown_ids() == unknown
    table.faults = CallFaults({("begin_delivery", 1): CallFault.BEFORE})
    word = LandedRows(2, len(unknown))
    assert table.contacts(unknown_landed=word).status == "unknown"
    table.faults = None
    # The same command again says nothing of the rows that are left.
    again = table.contacts(unknown_landed=word)
    assert f"2 of {len(unknown)} unknown rows are said to have landed, and {len(unknown) - 2} are" in (
        again.error or ""
    )
    table.other_streams["others"] = table.push
    with pytest.raises(ConfigError, match="Name the stream"):
        table.run(unknown_landed=LandedRows(3, 13))


def test_after_all_rows_have_landed_nothing_is_sent_that_nobody_remembers(quick_folder: Path) -> None:
    table = PushedTable(quick_folder, mode="append")
    table.push |= {"changes": "all"}
    table.fill([person(number) for number in range(10)])
    table.config |= {"dies_after": 9, "once": str(quick_folder / "once")}
    unknown = table.contacts().unknown
    assert unknown == 5
    sent = len(table.received())
    report = table.contacts(unknown_landed=LandedRows(5, 5))
    assert (report.status, report.sent, report.resumed, len(table.received())) == ("complete", 0, 10, sent)
    assert table.contacts().sent == 10


def test_the_way_out_is_named_where_the_table_that_remembers_is_gone_too(quick_folder: Path) -> None:
    table = _interrupted(quick_folder)
    shutil.rmtree(table.tables.folder(TableName("_pushes", "crm__contacts")))
    assert "`airbyte-proto push crm --full --streams contacts`" in (table.contacts().error or "")
    assert "--full --retry-unknown`, which sends all of them again" in (table.contacts(is_full=True).error or "")
    assert table.contacts(is_full=True, retries_unknown=True).status == "complete"
    assert table.delivered().keys() == set(range(20))


def test_a_plan_says_that_rows_of_an_earlier_one_go_first(quick_folder: Path) -> None:
    table = _interrupted(quick_folder)
    [warning] = table.run(only_plans=True).warnings
    assert "15 rows of an earlier push are left" in warning
    assert f"{len(table.unknown_ids())} of them were sent and not acknowledged" in warning


def test_rows_on_which_our_own_code_fails_are_accounted_for(
    quick_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = PushedTable(quick_folder, mode="append")
    table.fill([person(number) for number in range(20)])
    written = StreamEncoder.pieces

    def pieces(encoder: StreamEncoder, rows: pa.RecordBatch, batch: PlanBatch) -> Iterator[bytes | memoryview]:
        if batch.start >= 10:
            raise KeyError(batch.start)
        yield from written(encoder, rows, batch)

    with monkeypatch.context() as patched:
        patched.setattr(StreamEncoder, "pieces", pieces)
        report = table.contacts()
    assert (report.status, report.sent) == ("unknown", report.acknowledged + report.unknown)
    assert report.sent >= 10
    assert "may be there: the next push asks what to do" in (report.error or "")
    assert table.contacts(unknown_landed=LandedRows(0, report.unknown)).status == "complete"
    assert {row["id"] for row in table.received()} == {*range(20)}
