"""The rules on reads, states and cancelling: a broken connector breaks each, and what nobody can tell is not judged."""

from typing import Any

import pytest

from dagster_airbyte_proto.certification.rule import Outcome
from dagster_airbyte_proto.certification.watching.watched_program import Bounds
from tests.certification.conftest import SCENARIO, SECRET, Certifier, with_outcome
from tests.certification.faulty import ROTATED

PROTOCOLS = ("airbyte", "singer")
_RESUMING = {"state_resumes", "last_state_resumes", "cancel_resumes"}


@pytest.mark.parametrize(
    ("protocol", "fault", "broken", "met"),
    [
        ("airbyte", "fails_at_end", "read_ends", "exited with code 3"),
        pytest.param("singer", "fails_at_end", "read_ends", "exited with code 3", marks=pytest.mark.nightly),
        ("airbyte", "broken_message", "read_messages", "1 message cannot be read"),
        ("singer", "undeclared_stream", "read_streams", "not requested: 1 record"),
        ("airbyte", "wrong_type", "read_types", "not as the schema says: 10 values, in 2 ways"),
        pytest.param(
            "singer",
            "wrong_type",
            "read_types",
            "not as the schema says: 10 values, in 2 ways",
            marks=pytest.mark.nightly,
        ),
        ("airbyte", "null_key", "read_keys", "without a part of the primary key: 1 record"),
        ("singer", "no_states", "states_come", "no state came"),
        ("airbyte", "loses_on_resume", "state_resumes", "records are lost, 0 come again"),
        pytest.param(
            "singer", "loses_on_resume", "state_resumes", "records are lost, 0 come again", marks=pytest.mark.nightly
        ),
        ("airbyte", "repeats_on_resume", "last_state_resumes", "0 records are lost"),
        ("singer", "repeats_on_resume", "cancel_resumes", "0 records are lost"),
        ("airbyte", "secret_in_records", "secrets_not_written", "lines with a secret"),
        ("airbyte", "miscounts", "states_count", "9 of 9 states miscount"),
        ("airbyte", "incomplete", "read_statuses", "exit code 0, and users"),
    ],
)
def test_a_broken_rule_of_reads_is_found(
    certifier: Certifier, protocol: str, fault: str, broken: str, met: str
) -> None:
    rulings = certifier.rulings(protocol, fault)
    ruling = rulings[broken]
    assert ruling.outcome is Outcome.BROKEN, rulings
    assert met in ruling.met
    assert ruling.samples or fault in ("no_states", "fails_at_end", "incomplete")
    assert ruling.remedy
    assert SECRET not in str(rulings)
    # A row that is lost or changed in each run is missing from resumed ones too.
    changes_rows = "resume" in fault or fault in ("undeclared_stream", "wrong_type", "null_key")
    also = {"read_types", *_RESUMING} if changes_rows else set[str]()
    assert with_outcome(rulings, Outcome.BROKEN) - {broken} <= also, rulings


def test_lines_that_are_no_messages_break_singers_rule_and_are_a_warning_for_airbyte(certifier: Certifier) -> None:
    for protocol, outcome in (("airbyte", Outcome.WARNING), ("singer", Outcome.BROKEN)):
        ruling = certifier.rulings(protocol, "prints")["read_messages"]
        assert ruling.outcome is outcome
        assert [each.text for each in ruling.samples] == ["Loading..."]


def test_records_before_their_schema_are_a_warning(certifier: Certifier) -> None:
    ruling = certifier.rulings("singer", "no_schema")["schemas_first"]
    assert ruling.outcome is Outcome.WARNING
    assert "52 records came before the SCHEMA" in ruling.met


def test_a_value_that_does_not_fit_is_outlined_and_not_shown(certifier: Certifier) -> None:
    ruling = certifier.rulings("airbyte", "wrong_type")["read_types"]
    assert any("id: the schema says integer" in each.text and '"aaaaaa 9"' in each.text for each in ruling.samples)
    assert "number 4" not in str(ruling)
    assert ruling.samples[0].where.endswith("and 7 more")


@pytest.mark.everyday("airbyte")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_read_that_does_not_end_is_stopped_and_nothing_follows_from_it(certifier: Certifier, protocol: str) -> None:
    rulings = certifier.rulings(protocol, "hangs_at_end", bounds=Bounds(query_seconds=20.0, read_seconds=3.0))
    assert with_outcome(rulings, Outcome.BROKEN) == {"read_ends"}
    assert rulings["state_resumes"].outcome is Outcome.CANNOT_TELL


@pytest.mark.everyday("singer")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_of_a_source_that_is_not_deterministic_nobody_can_tell(certifier: Certifier, protocol: str) -> None:
    rulings = certifier.rulings(protocol, "random_rows")
    for rule in ("state_resumes", "last_state_resumes", "cancel_resumes"):
        assert rulings[rule].outcome is Outcome.CANNOT_TELL, rulings[rule]
    assert "nobody can foresee" in rulings["state_resumes"].met


@pytest.mark.parametrize("protocol", ["airbyte"])
def test_rows_whose_values_change_are_compared_by_their_keys(certifier: Certifier, protocol: str) -> None:
    rulings = certifier.rulings(protocol, "random_values")
    assert rulings["state_resumes"].outcome is Outcome.HOLDS
    assert "compared by key" in rulings["state_resumes"].met
    broken = certifier.rulings(protocol, "random_values", "loses_on_resume")["state_resumes"]
    assert broken.outcome is Outcome.BROKEN
    assert "compared by key" in str(broken.samples)


@pytest.mark.everyday("airbyte")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_connector_that_ignores_sigterm_is_killed_and_warned_of(certifier: Certifier, protocol: str) -> None:
    rulings = certifier.rulings(protocol, "ignores_sigterm", "slow")
    assert rulings["cancel_ends"].outcome is Outcome.WARNING
    assert "was killed" in rulings["cancel_ends"].met
    assert rulings["cancel_resumes"].outcome is Outcome.HOLDS


@pytest.mark.everyday("global")
@pytest.mark.parametrize("state", ["global", "legacy"])
def test_shared_states_resume(certifier: Certifier, state: str) -> None:
    scenario: dict[str, Any] = {**SCENARIO, "state": state, "interleave": True}
    scenario["streams"] = {"users": {"records": 30}, "orders": {"records": 30}}
    rulings = certifier.rulings("airbyte", "slow", scenario=scenario)
    for rule in ("state_resumes", "last_state_resumes", "cancel_resumes"):
        assert rulings[rule].outcome is Outcome.HOLDS, rulings[rule]
    assert rulings["cancel_ends"].outcome is Outcome.HOLDS


def test_full_refreshes_have_no_states_to_judge(certifier: Certifier) -> None:
    scenario = {"streams": {"users": {"records": 10, "incremental": False}}}
    rulings = certifier.rulings("airbyte", scenario=scenario)
    assert {"states_come", "state_resumes", "cancel_resumes"} <= with_outcome(rulings, Outcome.DOES_NOT_APPLY)


def test_speed_and_memory_are_measured(certifier: Certifier) -> None:
    measures = certifier.certify("airbyte", "slow").measures
    assert measures is not None
    assert measures.records == 52
    assert measures.records_per_second > 0 and measures.bytes_per_second > 0
    assert measures.peak_memory_bytes is not None and measures.peak_memory_bytes > 1 << 20


def test_a_rewritten_config_is_used_and_is_no_leak(certifier: Certifier) -> None:
    rotated = {"scenario": dict(SCENARIO), "password": "rotated-by-the-source", "count": 3}
    rulings = certifier.rulings("airbyte", scenario={**SCENARIO, "new_config": rotated})
    assert with_outcome(rulings, Outcome.BROKEN) == set(), rulings
    leaking = certifier.rulings("airbyte", "secret_in_records", scenario={**SCENARIO, "new_config": rotated})
    assert leaking["secrets_not_written"].outcome is Outcome.BROKEN
    assert SECRET not in str(leaking) and "rotated-by-the-source" not in str(leaking)


def test_a_secret_that_a_check_of_a_bad_config_rotated_is_found_and_hidden(certifier: Certifier) -> None:
    found = certifier.certify("airbyte", "rotates_in_check")
    leaked = next(each.ruling for each in found.rules if each.rule.name == "secrets_not_written")
    assert leaked.outcome is Outcome.BROKEN and ROTATED not in str(found.value)
