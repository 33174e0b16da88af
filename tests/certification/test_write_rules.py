"""Rulings on writes whose evidence takes long, or a rare destination, to make."""

import dataclasses
from typing import Any

import pytest

from dagster_airbyte_proto.certification.evidence import Reply
from dagster_airbyte_proto.certification.rule import Outcome, Ruling
from dagster_airbyte_proto.certification.rules.destinations import echo_rules, write_rules
from dagster_airbyte_proto.certification.watching.watched_launcher import ConnectorRun
from dagster_airbyte_proto.certification.writes.scratch_rows import long_batch_rows
from dagster_airbyte_proto.certification.writes.write_evidence import (
    DestinationEvidence,
    ReceivedState,
    WriteEvidence,
)
from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.launchers.process import ExitReport
from dagster_airbyte_proto.masking import Mask
from dagster_airbyte_proto.model import PushMode
from dagster_airbyte_proto.protocols.conversation import Verb
from dagster_airbyte_proto.protocols.destination import StreamResult

_LATE = ConnectorError("writing to the destination", "it did not end in time")


def _write(seconds: float, *, is_late: bool = False, result: StreamResult | None = None) -> WriteEvidence:
    report = ExitReport(None if is_late else 0, 15 if is_late else None, is_late, seconds)
    run = ConnectorRun(Verb.WRITE, b"", 0, seconds, 0.0, report, None)
    return WriteEvidence(rows=20, failure=_LATE if is_late else None, is_late=is_late, result=result, run=run)


def _evidence(**writes: Any) -> DestinationEvidence:
    found: dict[str, Any] = {
        name: Reply(each) if isinstance(each, WriteEvidence) else each for name, each in writes.items()
    }
    return DestinationEvidence(connector="crm", mask=Mask(()), has_secrets=False, spec=Reply(None), **found)


@pytest.mark.parametrize(("first_seconds", "outcome"), [(1.0, Outcome.BROKEN), (80.0, Outcome.CANNOT_TELL)])
def test_a_slow_destination_does_not_hang(first_seconds: float, outcome: Outcome) -> None:
    late = _write(120.0, is_late=True)
    evidence = _evidence(first=_write(first_seconds), cut=late, misfit=late)
    assert write_rules.cut_write_ends(evidence).outcome is outcome
    assert write_rules.misfit_is_loud(evidence).outcome is outcome


@pytest.mark.parametrize(
    ("mode", "again", "outcome"),
    [
        (PushMode.UPDATE, StreamResult(), Outcome.HOLDS),
        (PushMode.UPDATE, None, Outcome.BROKEN),
        (PushMode.APPEND, None, Outcome.DOES_NOT_APPLY),
    ],
)
def test_rows_by_key_are_acknowledged_again(mode: PushMode, again: StreamResult | None, outcome: Outcome) -> None:
    first = _write(1.0, result=StreamResult())
    found: Ruling = write_rules.same_rows_again(_evidence(mode=mode, first=first, again=_write(1.0, result=again)))
    assert found.outcome is outcome


def test_a_destination_that_counts_nothing_is_not_taken_for_one_that_loses_nothing() -> None:
    state = ReceivedState(message=1, rows=20, is_same=True, in_envelope=True, is_open=False)
    write = dataclasses.replace(_write(1.0), states=(20,), received=(state,))
    found: Ruling = echo_rules.states_count_rows(_evidence(objects=("airbyte_proto_certify",), first=write))
    assert found.outcome is Outcome.CANNOT_TELL
    assert "all 20 rows are in airbyte_proto_certify" in found.met
    counted = dataclasses.replace(write, received=(state._replace(records=20.0),))
    assert echo_rules.states_count_rows(_evidence(first=counted)).outcome is Outcome.HOLDS


@pytest.mark.parametrize(("rows", "each"), [(1, 1), (200, 10), (20_000, 1_000), (100_000_000, 10_000)])
def test_the_batches_of_a_long_write_are_bounded(rows: int, each: int) -> None:
    assert long_batch_rows(rows) == each
