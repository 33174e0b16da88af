"""Destinations of both protocols, each with faults: the rules that they break are found, and no others."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.certification.certificate import Certificate, certify
from dagster_airbyte_proto.certification.reports.html_page import html_page
from dagster_airbyte_proto.certification.reports.junit import junit_xml
from dagster_airbyte_proto.certification.rule import Outcome, Ruling
from dagster_airbyte_proto.certification.watching.watched_program import Bounds, Gathering, Scratch
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError, ConnectorError
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.connector.launcher_choice import ConnectorOptions
from dagster_airbyte_proto.sync.engine import Engine
from tests.certification.conftest import SECRET, with_outcome
from tests.certification.faulty_destination import ROTATED

PROGRAM = Path(__file__).with_name("faulty_destination.py")
BOUNDS = Bounds(query_seconds=30.0, write_seconds=30.0)
FEW = Scratch(rows=200)
BOTH = pytest.mark.parametrize("protocol", ["airbyte", "singer"])

CertifyDestination = Callable[..., Certificate]


def destination_connection(folder: Path, protocol: str, *faults: str) -> dict[str, Any]:
    """The document of a push to a destination with these faults, which writes to files in the folder."""
    command = [sys.executable, "-I", "-S", str(PROGRAM), protocol, ",".join(faults) or "none"]
    return {
        "name": "crm",
        "connector": {"protocol": protocol, "launch": {"kind": "local", "command": command}},
        "config": {"path": str(folder), "password": SECRET},
        "push": {"contacts": {"from": "shop.people", "key": ["id"]}},
    }


@pytest.fixture
def certified(tmp_path: Path) -> Iterator[CertifyDestination]:
    settings = Settings.load(tmp_path / "home", None)
    settings.make_home()
    (tmp_path / "out").mkdir()
    with Engine(settings, connector_options=ConnectorOptions(stop_grace_seconds=1.0)) as engine:

        def certified(
            protocol: str, *faults: str, scratch: Scratch = FEW, bounds: Bounds = BOUNDS, **written: Any
        ) -> Certificate:
            document = {**destination_connection(tmp_path / "out", protocol, *faults), **written}
            return certify(engine, Connection.model_validate(document), Gathering(bounds, None, scratch))

        yield certified


def _rulings(found: Certificate) -> dict[str, Ruling]:
    return {each.rule.name: each.ruling for each in found.rules}


@BOTH
def test_a_good_destination_keeps_every_rule_and_only_scratch_objects_are_written(
    certified: CertifyDestination, tmp_path: Path, protocol: str
) -> None:
    found = certified(protocol)
    rulings = _rulings(found)
    assert with_outcome(rulings, Outcome.BROKEN) | with_outcome(rulings, Outcome.WARNING) == set()
    assert with_outcome(rulings, Outcome.CANNOT_TELL) <= {"speed_flat", "memory_flat"}
    assert "all 5 states came back, while the input was open" in rulings["states_come_back"].met
    assert "`acknowledge: state`, the default, is right" in rulings["acknowledge_setting"].met
    assert "all of 21 kinds" in rulings["write_types"].met
    assert "the score is no number" in rulings["misfit_is_loud"].met
    names = {each.stem for each in (tmp_path / "out").iterdir()}
    # The row that does not fit fails its write before anything is in its object.
    assert names - {"none"} == set(FEW.objects) - {"airbyte_proto_certify_misfit"} and found.objects == FEW.objects
    assert (found.role, found.measures and found.measures.records) == ("destination", FEW.rows)
    assert SECRET not in str(found.value)


def test_faults_of_a_destination_of_airbyte_are_found_each_by_its_rule(certified: CertifyDestination) -> None:
    faults = (
        "accepts_all", "changes_states", "drops_misfits", "refuses_zero", "state_on_empty", "prints",
        "swallows_half", "ignores_sigterm", "logs_secret", "fails_again",
    )  # fmt: skip
    rulings = _rulings(certified("airbyte", *faults))
    assert with_outcome(rulings, Outcome.BROKEN) == {
        "check_refuses", "states_unchanged", "misfit_is_loud", "empty_input_ends", "write_again",
        "secrets_not_written",
    }  # fmt: skip
    assert with_outcome(rulings, Outcome.WARNING) == {
        "write_types", "write_messages", "cut_input_ends", "cancel_ends",
    }  # fmt: skip
    assert "it refused: text with a zero byte" in rulings["write_types"].met
    assert "a zero byte in a text" in rulings["write_types"].samples[0].text
    assert "the row is lost" in rulings["misfit_is_loud"].met
    assert "duplicate key" in rulings["write_again"].met
    assert "was killed" in rulings["cancel_ends"].met
    assert all(SECRET not in str(ruling) for ruling in rulings.values())


@pytest.mark.nightly
def test_states_that_never_come_back_need_another_setting(certified: CertifyDestination) -> None:
    rulings = _rulings(certified("singer", "never_echoes"))
    assert with_outcome(rulings, Outcome.BROKEN) == {"states_come_back"}
    assert with_outcome(rulings, Outcome.WARNING) == {"acknowledge_setting"}
    assert "Set `acknowledge: exit`" in rulings["acknowledge_setting"].remedy


@pytest.mark.nightly
def test_states_that_come_at_the_end_are_enough_and_miscounts_are_found(certified: CertifyDestination) -> None:
    rulings = _rulings(certified("airbyte", "echoes_last", "miscounts"))
    assert with_outcome(rulings, Outcome.BROKEN) == {"states_count"}
    assert with_outcome(rulings, Outcome.WARNING) == set()
    assert "1 of 5 states came back, all after the end of the input" in rulings["states_come_back"].met
    assert "20 of 20 rows are unknown, and go again" in rulings["cancel_ends"].met


@pytest.mark.nightly
def test_a_setting_that_is_needed_and_a_destination_that_drains(certified: CertifyDestination) -> None:
    by_exit = _rulings(certified("airbyte", "never_echoes", acknowledge="exit"))
    assert by_exit["acknowledge_setting"].outcome is Outcome.HOLDS
    drained = _rulings(certified("singer", "drains", acknowledge="exit"))
    assert "it drained: states came back after the signal, and all rows" in drained["cancel_ends"].met
    assert drained["acknowledge_setting"].outcome is Outcome.WARNING


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("fault", "broken", "warned"),
    [
        ("sends_strangers", {"states_come_back", "states_unchanged"}, {"acknowledge_setting"}),
        ("reverses_states", {"states_in_order"}, set()),
        ("repeats_states", set(), {"states_in_order"}),
        ("fails_empty", {"empty_input_ends", "check_succeeds"}, set()),
        ("drops_zero", {"write_types"}, set()),
        ("logs_secret", {"secrets_not_written"}, set()),
    ],
)
def test_a_fault_of_a_target_breaks_its_own_rule(
    certified: CertifyDestination, fault: str, broken: set[str], warned: set[str]
) -> None:
    rulings = _rulings(certified("singer", fault))
    assert with_outcome(rulings, Outcome.BROKEN) == broken
    assert with_outcome(rulings, Outcome.WARNING) == warned


@pytest.mark.nightly
def test_a_write_that_hangs_is_stopped_and_nothing_follows_from_it(certified: CertifyDestination) -> None:
    rulings = _rulings(certified("airbyte", "hangs_at_end", bounds=Bounds(query_seconds=30.0, write_seconds=4.0)))
    assert with_outcome(rulings, Outcome.BROKEN) == {"write_ends", "empty_input_ends"}
    assert "it did not end in time after the end of its input" in rulings["write_ends"].met
    assert {"write_again", "write_types", "cancel_ends"} <= with_outcome(rulings, Outcome.CANNOT_TELL)


@pytest.mark.nightly
def test_a_write_that_hangs_after_half_a_line_is_stopped(certified: CertifyDestination) -> None:
    rulings = _rulings(certified("airbyte", "hangs_on_half", bounds=Bounds(query_seconds=30.0, write_seconds=8.0)))
    assert with_outcome(rulings, Outcome.BROKEN) == {"cut_input_ends"}


@pytest.mark.everyday("at once")
@pytest.mark.parametrize("starts", [pytest.param((), id="at once"), pytest.param(("starts_slowly",), id="slowly")])
def test_rejected_rows_and_bare_states_are_read_as_in_a_push(
    certified: CertifyDestination, starts: tuple[str, ...]
) -> None:
    rulings = _rulings(certified("airbyte", "counts_misfits", "bare", "appends_only", *starts))
    assert with_outcome(rulings, Outcome.BROKEN) | with_outcome(rulings, Outcome.WARNING) == set()
    assert "1 of 5 rows were rejected, and counted so" in rulings["misfit_is_loud"].met
    assert rulings["states_come_back"].met == "all 5 states came back, while the input was open, bare"
    assert "no mode by key" in rulings["write_again"].met


@pytest.mark.nightly
def test_a_destination_that_keeps_its_rows_or_slows_down(certified: CertifyDestination) -> None:
    keeps = _rulings(certified("singer", "keeps_rows", scratch=Scratch(rows=12_000)))["memory_flat"]
    assert keeps.outcome is Outcome.WARNING and "it keeps what it gets" in keeps.met
    slows = _rulings(
        certified("singer", "slows_down", scratch=Scratch(rows=12_000), bounds=Bounds(write_seconds=120.0))
    )["speed_flat"]
    assert slows.outcome is Outcome.WARNING
    bounds = Bounds(query_seconds=30.0, write_seconds=12.0)
    slow = _rulings(certified("singer", "slows_down", scratch=Scratch(rows=12_000), bounds=bounds))["speed_flat"]
    assert slow.outcome is Outcome.CANNOT_TELL and "take fewer --rows, or more --write-seconds" in slow.met


@pytest.mark.nightly
@BOTH
def test_a_source_in_the_place_of_a_destination(certified: CertifyDestination, protocol: str) -> None:
    ruling = _rulings(certified(protocol, "sends_records"))["write_ends"]
    assert ruling.outcome is Outcome.BROKEN and "Name a destination" in ruling.remedy


def test_a_recording_takes_no_rows_of_certify(certified: CertifyDestination, tmp_path: Path) -> None:
    launch = {"kind": "replay", "recording": str(tmp_path)}
    with pytest.raises(ConfigError, match="takes the rows that were recorded"):
        certified("airbyte", connector={"protocol": "airbyte", "launch": launch})


@pytest.mark.parametrize("name", ["contacts", "Contacts", "main.contacts"])
def test_what_the_connection_pushes_to_is_never_written(
    certified: CertifyDestination, tmp_path: Path, name: str
) -> None:
    with pytest.raises(ConfigError, match="it pushes to contacts, and certify would write rows of its own"):
        certified("airbyte", scratch=Scratch(name, 20))
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("file_naming_scheme", "users.csv"),
        ("custom_name", "users"),
        ("stream_maps", {"*": {"__alias__": "users"}}),
        ("indexing", [{"table_name": "users"}]),
    ],
)
def test_a_config_that_fixes_where_rows_go_is_refused_before_the_destination_starts(
    certified: CertifyDestination, tmp_path: Path, key: str, value: Any
) -> None:
    config = {"path": str(tmp_path / "out"), "password": SECRET, key: value}
    with pytest.raises(ConfigError, match=key if isinstance(value, str) else f"{key}.*(__alias__|table_name)"):
        certified("singer", "never_echoes", config=config)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("may_overwrite", [True, False])
def test_a_place_for_trials_may_have_a_fixed_name_and_a_stream_in_the_name_fixes_nothing(
    certified: CertifyDestination, tmp_path: Path, *, may_overwrite: bool
) -> None:
    name = "users.csv" if may_overwrite else "{stream_name}.csv"
    config = {"path": str(tmp_path / "out"), "password": SECRET, "file_naming_scheme": name}
    found = certified("singer", config=config, scratch=Scratch(rows=20, may_overwrite=may_overwrite))
    fixed = ["what file_naming_scheme in the config names"] if may_overwrite else []
    assert found.value["written_to"] == [*FEW.objects, *fixed]


def test_nothing_is_written_where_discover_failed(certified: CertifyDestination, tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match="its discover exited with code 3: 503 from its service"):
        certified("airbyte", "discover_fails")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("fault", ["rotates_in_write", "rotates_in_check"])
def test_a_secret_that_came_up_meanwhile_is_found_and_hidden_like_the_first(
    certified: CertifyDestination, fault: str
) -> None:
    # In a write it is logged before the config with it comes, in a property whose name does not sound secret.
    found = certified("airbyte", fault, scratch=Scratch(rows=20))
    leaked = _rulings(found)["secrets_not_written"]
    assert leaked.outcome is Outcome.BROKEN and "***" in leaked.samples[0].text
    assert ROTATED not in str(found.value) + html_page(found) + junit_xml(found).decode()


@pytest.mark.parametrize(
    "email",
    [
        {"type": "string", "pattern": "("},
        {"type": "array", "examples": [[1, "a"]]},
        {"type": "integer", "minimum": None},
        {"type": "string", "minLength": "3"},
        {"type": "string", "minLength": 300_000_000},
        {"type": "integer", "default": 2**70},
    ],
)
def test_a_schema_for_which_there_are_no_rows_is_no_failure_of_certify_and_leaves_no_process(
    certified: CertifyDestination, tmp_path: Path, email: dict[str, Any]
) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "email": email}}
    config = {"path": str(tmp_path / "out"), "password": SECRET, "object_schema": schema}
    found = certified("airbyte", config=config, scratch=Scratch("contacts", 20))
    written = _rulings(found)["write_ends"]
    assert written.outcome is Outcome.CANNOT_TELL
    assert "certify has no rows that fit the schema of its object" in written.met
    assert not any("write" in each.purpose for each in found.steps)


@pytest.mark.nightly
def test_rows_that_are_lost_in_silence_and_a_row_at_which_it_hangs_break_rules(certified: CertifyDestination) -> None:
    bounds = Bounds(query_seconds=30.0, write_seconds=12.0)
    rulings = _rulings(certified("airbyte", "hangs_on_misfit", "skips_zero", "mute_again", bounds=bounds))
    assert with_outcome(rulings, Outcome.BROKEN) == {"misfit_is_loud", "write_types", "write_again"}
    assert "did not end in time" in rulings["misfit_is_loud"].met
    assert rulings["write_types"].samples[0].text == "it ended well, and counted 1 of 2 rows"
    assert "acknowledged 0 of 20 rows" in rulings["write_again"].met
