"""The rules on spec, check and discover: a good connector keeps them all, and one broken connector breaks each."""

import pytest

from dagster_airbyte_proto.certification.rule import Outcome
from dagster_airbyte_proto.certification.watching.watched_program import Bounds
from dagster_airbyte_proto.errors import ConfigError
from tests.certification.conftest import SECRET, Certifier, with_outcome

PROTOCOLS = ("airbyte", "singer")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_good_connector_keeps_every_rule(certifier: Certifier, protocol: str) -> None:
    certificate = certifier.certify(protocol)
    rulings = {each.rule.name: each.ruling for each in certificate.rules}
    assert with_outcome(rulings, Outcome.BROKEN) == set(), rulings
    assert rulings["check_refuses"].outcome is Outcome.HOLDS
    assert "without count" in rulings["check_refuses"].met
    assert not certificate.is_broken
    assert all(each.rule.demand and each.rule.origin and each.rule.remedy for each in certificate.rules)


@pytest.mark.parametrize("protocol", ["airbyte", pytest.param("singer", marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    ("fault", "outcome", "rule", "met"),
    [
        ("invalid_spec", Outcome.BROKEN, "valid", "not a valid JSON schema"),
        ("unmarked_secret", Outcome.WARNING, "secrets_marked", "not marked: 1"),
        ("refuses_all", Outcome.BROKEN, "check_succeeds", "the check of the good config failed"),
        ("accepts_all", Outcome.BROKEN, "check_refuses", "the check succeeded without "),
        ("mute_discover", Outcome.BROKEN, "discover_answered", "no answer"),
        ("empty_catalog", Outcome.BROKEN, "discover_answered", "the catalog has no stream"),
        ("unstable_catalog", Outcome.BROKEN, "discover_stable", "differ in 1 streams"),
        ("undeclared_key", Outcome.BROKEN, "discover_valid", "2 faults in 2 of its streams"),
        ("logs_secret", Outcome.BROKEN, "secrets_not_written", "lines with a secret"),
    ],
)
def test_a_broken_rule_is_found(
    certifier: Certifier, protocol: str, fault: str, outcome: Outcome, rule: str, met: str
) -> None:
    rulings = certifier.rulings(protocol, fault)
    name = rule if rule in rulings else f"{'spec' if protocol == 'airbyte' else 'about'}_{rule}"
    assert rulings[name].outcome is outcome, rulings[name]
    assert met in rulings[name].met
    assert rulings[name].remedy
    assert SECRET not in str(rulings)
    others = with_outcome(rulings, Outcome.BROKEN) - {name}
    # A key that is not declared is in no record either.
    assert others <= ({"read_keys"} if fault == "undeclared_key" else set()), rulings


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_connector_without_a_spec_is_judged_no_further(certifier: Certifier, protocol: str) -> None:
    rulings = certifier.rulings(protocol, "mute_spec")
    assert with_outcome(rulings, Outcome.BROKEN) == {"spec_answered" if protocol == "airbyte" else "about_answered"}
    assert with_outcome(rulings, Outcome.CANNOT_TELL) == rulings.keys() - with_outcome(rulings, Outcome.BROKEN)


@pytest.mark.everyday("airbyte")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_check_that_hangs_on_a_bad_config_is_stopped(certifier: Certifier, protocol: str) -> None:
    rulings = certifier.rulings(protocol, "hangs_on_bad_config", bounds=Bounds(query_seconds=2.0))
    assert with_outcome(rulings, Outcome.BROKEN) == {"check_ends"}
    assert "without count" in rulings["check_ends"].met


def test_a_bad_config_of_the_user_is_no_fault_of_the_connector(certifier: Certifier) -> None:
    with pytest.raises(ConfigError, match="count"):
        certifier.certify("airbyte", config={"scenario": {}, "password": SECRET})
