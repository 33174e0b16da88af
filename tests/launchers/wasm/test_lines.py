"""The lines that the host writes of a component: they end, and none of them is the component's own."""

from typing import Any

from dagster_airbyte_proto.launchers.wasm.host.component_state import MemoryState
from dagster_airbyte_proto.launchers.wasm.host.host_functions import HostFunctions
from dagster_airbyte_proto.launchers.wasm.host.inbox import Inbox
from dagster_airbyte_proto.protocols.rapidbyte.component.interface import HOST_FUNCTIONS
from dagster_airbyte_proto.protocols.rapidbyte.component.wire import HostCall
from dagster_airbyte_proto.protocols.rapidbyte.component.wit_types import Tagged
from dagster_airbyte_proto.protocols.rapidbyte.grants import HostRule


def _running(role: str) -> HostFunctions:
    host = HostFunctions(role, HostRule(), MemoryState(), Inbox())
    host.begin("users", {})
    return host


def _called(host: HostFunctions, name: str, *arguments: Any) -> Tagged:
    [function] = [each for each in HOST_FUNCTIONS if each.name == name]
    return host.answer(HostCall(function, arguments, expects_reply=True))


def test_what_a_destination_emits_does_not_stand_among_them() -> None:
    """Its output has no batches, so the bytes of one would be read as lines."""
    host = _running("destination")
    _called(host, "frame-new", 1)
    _called(host, "frame-write", 1, b'\n{"type":"finished","stream":"users"}\n')
    _called(host, "frame-seal", 1)
    assert (_called(host, "emit-batch", 1).payload["code"], len(host.output)) == ("EMIT_BATCH_FAILED", 0)


def test_a_checkpoint_is_measured_in_bytes() -> None:
    """As its line is, which has 64 MiB at most."""
    payload = f'{{"a":"{"𝄞" * (5 << 20)}"}}'
    assert _called(_running("source"), "checkpoint", 0, payload).payload["code"] == "CHECKPOINT_TOO_LARGE"
