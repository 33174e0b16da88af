"""Health checks end at their deadline, whatever they look at, and their findings have no secret."""

import threading
import time
from collections.abc import Sequence

import pytest

from dagster_airbyte_proto.diagnosis.health_check import Finding, HealthCheck, Verdict, fails, findings, ok
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.masking import Mask


def found(*checks: HealthCheck, secrets: Sequence[str] = ()) -> list[Finding]:
    return list(findings(checks, Mask(secrets), lambda _part: None))


def test_a_part_that_does_not_answer_fails_at_its_deadline_and_the_next_is_looked_at() -> None:
    for_ever, given_up = threading.Event(), threading.Event()

    def hang() -> Sequence[Finding]:
        for_ever.wait()
        return []

    began = time.monotonic()
    late, after = found(
        HealthCheck("disk", hang, seconds=0.1, late="Unmount it.", give_up=given_up.set),
        HealthCheck("clock", lambda: [ok("clock", "right")]),
    )
    assert time.monotonic() - began < 10
    assert late[:4] == ("disk", Verdict.FAILS, "no answer within 0 s", "Unmount it.")
    assert given_up.is_set() and after.verdict is Verdict.OK
    for_ever.set()


def test_an_error_is_a_finding_with_its_remedy() -> None:
    def refuse() -> Sequence[Finding]:
        raise ConfigError("opening it", "there is none", remedy="Make one.")

    [finding] = found(HealthCheck("store", refuse))
    assert finding[:4] == ("store", Verdict.FAILS, "there is none", "Make one.")


def test_a_bug_in_a_probe_does_not_end_the_others() -> None:
    texts: dict[str, str] = {}
    bug, after = found(HealthCheck("a", lambda: [ok("a", texts["b"])]), HealthCheck("c", lambda: [ok("c", "d")]))
    assert (bug.verdict, bug.found) == (Verdict.FAILS, "KeyError: 'b'") and "report" in bug.remedy
    assert after.verdict is Verdict.OK


@pytest.mark.parametrize("text", ["no login with hunter22", "https://ada:hunter22@host/x", "https://token@host/x"])
def test_secrets_are_masked(text: str) -> None:
    [finding] = found(HealthCheck("store", lambda: [fails("store", text, text)]), secrets=["hunter22"])
    assert "***" in finding.found and "***" in finding.remedy
    assert not {"hunter22", "token", "ada:"} & set(finding.found.replace("@", " ").replace("/", " ").split())
    assert "hunter22" not in finding.found + finding.remedy
