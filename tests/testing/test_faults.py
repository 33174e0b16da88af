"""The fault layer knows every call that the engine makes of a store, of tables, and of a launcher."""

from types import ModuleType

import pytest

from dagster_airbyte_proto.checkpoints import deliveries, kept_values, store
from dagster_airbyte_proto.errors import ConnectorError, ProtoError, StateUnavailable, TableError
from dagster_airbyte_proto.launchers import process
from dagster_airbyte_proto.tables import writer
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults, with_faults
from tests.simulation.scripted_source import ScriptedConnector


def _calls(module: ModuleType) -> list[str]:
    interfaces = [each for each in vars(module).values() if getattr(each, "_is_protocol", False)]
    own = [each for each in interfaces if each.__module__ == module.__name__]
    return [name for each in own for name, made in vars(each).items() if callable(made) and not name.startswith("_")]


@pytest.mark.parametrize(
    ("module", "error"),
    [
        (writer, TableError),
        (store, StateUnavailable),
        (deliveries, StateUnavailable),
        (kept_values, StateUnavailable),
        (process, ConnectorError),
    ],
)
def test_a_failing_call_raises_the_error_that_its_interface_has(module: ModuleType, error: type[ProtoError]) -> None:
    calls = _calls(module)
    assert calls or module is deliveries  # which has those of the others
    for name in calls:
        with pytest.raises(error):
            CallFaults({(name, 1): CallFault.BEFORE}).call(name, lambda: None)


def test_a_call_that_hangs_has_its_effect_and_answers_after_others_have_worked() -> None:
    done: list[str] = []
    faults = CallFaults({("announce", 1): CallFault.HUNG}, lambda: done.append("others"))

    def announce() -> str:
        done.append("effect")
        return "answer"

    assert faults.call("announce", announce) == "answer"
    assert done == ["effect", "others"]


def test_a_connector_that_hangs_brings_nothing_in_time_until_it_is_stopped() -> None:
    connector = ScriptedConnector([{"type": "LOG"}])
    running = with_faults(connector, CallFaults({("read read", 1): CallFault.HUNG}), "read")
    assert [running.read(1.0), running.read(1.0)] == [None, None]
    assert running.wait(0) is not None
    running.stop()
    assert running.read(1.0) == b""
    assert with_faults(ScriptedConnector([]), CallFaults({("read read", 1): CallFault.HUNG}), "discover").read(1) == b""


def test_a_fault_of_a_call_that_no_interface_has_is_refused() -> None:
    with pytest.raises(LookupError, match="witnes"):
        CallFaults({("witnes", 1): CallFault.BEFORE}).call("witnes", lambda: None)
