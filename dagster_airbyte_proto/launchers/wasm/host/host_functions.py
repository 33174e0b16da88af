"""The functions of the host, for one connector: what each of its calls does here.

A call has a value, or it is refused with an error of the protocol. What the rest of us must know of it becomes a line
of the output (`messages.py`), in `output`: whoever serves the calls takes it from there.

| call | limits |
|---|---|
| log, metric | a text is cut after 64 KiB; `log_room.py` |
| checkpoint | 16 MiB, a JSON object, of the connector's own kind |
| emit-dlq-record | 10,000 a run |
| state-… | a key of 1 KiB, a value of 1 MiB, 4 MiB for a stream or another scope, 10,000 puts a run |
| frame-… | `frames.py` |
| connect-tcp, socket-… | `sockets.py` |
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from dagster_airbyte_proto.launchers.wasm.host.component_state import (
    CONNECTOR_INSTANCE,
    PER_STREAM,
    ComponentState,
)
from dagster_airbyte_proto.launchers.wasm.host.frames import Frames
from dagster_airbyte_proto.launchers.wasm.host.inbox import Inbox, records_processed
from dagster_airbyte_proto.launchers.wasm.host.log_room import LogRoom
from dagster_airbyte_proto.launchers.wasm.host.refusals import CallRefused, refusal
from dagster_airbyte_proto.launchers.wasm.host.sockets import HostSockets
from dagster_airbyte_proto.protocols.rapidbyte import messages
from dagster_airbyte_proto.protocols.rapidbyte.component.interface import ROLES
from dagster_airbyte_proto.protocols.rapidbyte.component.wire import HostCall
from dagster_airbyte_proto.protocols.rapidbyte.component.wit_types import Tagged
from dagster_airbyte_proto.protocols.rapidbyte.grants import HostRule
from dagster_airbyte_proto.protocols.rapidbyte.messages import ProvedPosition
from dagster_airbyte_proto.protocols.rapidbyte.reported_error import ErrorCategory
from dagster_airbyte_proto.protocols.raw_json import exact_number

MAX_REJECTED = 10_000
_MAX_TEXT = 64 << 10
_MAX_CHECKPOINT_BYTES = 16 << 20
_MAX_KEY_BYTES = 1024
_MAX_VALUE_BYTES = 1 << 20
_MAX_RECORD_CHARACTERS = 1 << 20
_MAX_PUTS = 10_000
_MAX_SCOPE_CHARACTERS = 4 << 20
_OBJECT = msgspec.json.Decoder(dict[str, Any], float_hook=exact_number)


class HostFunctions:
    """Answers the calls of a connector of this role, and keeps what they leave behind.

    `stream` is the one that runs, see `begin`. `effects` counts batches, checkpoints, rejected records and values that
    it keeps: a call that failed after one of them must not be made again. `inbox` has what comes in for a destination.
    """

    def __init__(self, role: str, rule: HostRule, state: ComponentState, inbox: Inbox | None = None) -> None:
        self.stream: str | None = None
        self.output: deque[bytes] = deque()
        self.effects = 0
        self._kind = ROLES.index(role)
        self._state = state
        self.inbox = inbox or Inbox(is_closed=True)
        self._frames, self._sockets = Frames(), HostSockets(rule)
        self.rejected = self._puts = 0
        self._has_unreported_puts = False
        self._log_room = LogRoom()
        self._last_checkpoint, self._has_unsaved, self._has_batch = "{}", False, False
        self._functions: Mapping[str, Callable[..., Any]] = {
            "emit-batch": self._emit_batch,
            "next-batch": self._next_batch,
            "log": self._log,
            "checkpoint": self._checkpoint,
            "metric": self._metric,
            "emit-dlq-record": self._emit_dlq_record,
            "state-get": self._state_get,
            "state-put": self._state_put,
            "state-cas": self._state_cas,
            "frame-new": self._frames.new,
            "frame-write": self._frames.write,
            "frame-seal": self._frames.seal,
            "frame-len": self._frames.length,
            "frame-read": self._frames.read,
            "frame-drop": self._frames.drop,
            "connect-tcp": self._sockets.connect,
            "socket-read": self._sockets.read,
            "socket-write": self._sockets.write,
            "socket-close": self._sockets.close,
        }

    def answer(self, call: HostCall) -> Tagged:
        """The result of a call. Raises ProtocolViolation if the connector must not go on."""
        try:
            return Tagged("ok", self._functions[call.function.name](*call.arguments))
        except CallRefused as refused:
            return Tagged("err", refused.error.to_wit())

    def asks_transform_further(self, call: HostCall) -> bool:
        """True if a transform that has a batch asks for the next one."""
        return self._has_batch and call.function.name == "next-batch" and ROLES[self._kind] == "transform"

    def note_answer(self) -> None:
        """Notes that a transform has answered its batch, with all that it keeps now."""
        self._has_batch = False
        kept = self.kept() if self._has_unreported_puts else {}
        self._has_unreported_puts = False
        self._write(messages.ANSWERED, **({"kept": kept} if kept else {}))

    def has_to_wait(self, call: HostCall) -> bool:
        """True if there is no answer yet: the batch that the connector wants may still come."""
        return call.function.name == "next-batch" and self.inbox.is_waited_for

    def is_connecting(self, call: HostCall, seconds: float) -> bool:
        """Waits for the connection that the connector asks for, up to so many seconds. True while there is no answer:
        a server, or the resolver of its name, takes its time."""
        if call.function.name != "connect-tcp":
            return False
        host, port = call.arguments
        return self._sockets.is_connecting(host, port, seconds)

    def begin(self, stream: str, values: Mapping[str, str], checkpoint: str = "{}") -> None:
        """Notes that this stream runs from now on, with the values that it kept, and its last checkpoint.

        A component that reads another partition may have begun before, and put other values since.
        """
        self.stream = stream
        self.rejected = self._puts = 0
        self._log_room.renew()
        self._last_checkpoint, self._has_unsaved = checkpoint, False
        for key, text in values.items():
            if self._state.get(PER_STREAM, stream, key) is None:
                self._state.put(PER_STREAM, stream, key, text)

    def end_source_stream(self) -> None:
        """Has what the stream kept since its last checkpoint go with that once more: it ran to a good end."""
        if self._has_unsaved and self.stream is not None:
            values = self._state.of_stream(self.stream)
            self._write("checkpoint", checkpoint=self._last_checkpoint, values=values)

    def kept_of(self, stream: str) -> Mapping[str, str]:
        """The values that are kept of a stream."""
        return self._state.of_stream(stream)

    def kept(self) -> Mapping[str, Mapping[str, str]]:
        """All that is kept, by the names of the scopes; nothing if there is none."""
        found = {**self._state.shared(), "stream": self._state.of_stream(self.stream) if self.stream else {}}
        return {name: values for name, values in found.items() if values}

    @property
    def left_out_lines(self) -> int:
        """The lines of its log that were left out, because there were too many."""
        return self._log_room.left_out

    def close(self) -> None:
        self._sockets.close_all()

    def _write(self, kind: str, **parts: Any) -> None:
        named = {} if self.stream is None else {"stream": self.stream}
        self.output.append(messages.line(kind, **named, **parts))

    def _emit_batch(self, handle: int) -> None:
        if self.stream is None:
            raise refusal(ErrorCategory.INTERNAL, "NO_STREAM", "no stream runs: a batch belongs to none")
        if self._is_destination:
            # Its output has lines alone: a batch between them would be read as more of these.
            raise refusal(ErrorCategory.FRAME, "EMIT_BATCH_FAILED", "a destination takes batches, and emits none")
        content = self._frames.take(handle)
        self._write(messages.BATCH, bytes=len(content))
        self.output.append(content)
        self.effects += 1

    def _next_batch(self) -> int | None:
        self._frames.check_room()
        content = self.inbox.next()
        if content is None:
            return None
        self.effects += 1
        self._has_batch = True
        return self._frames.add_sealed(content)

    def _log(self, level: int, text: str) -> None:
        shown = text[:_MAX_TEXT]
        if self._log_room.takes(level, shown):
            self._write("log", level=level, message=shown)

    def _metric(self, payload: str) -> None:
        self._write("metric", message=payload[:_MAX_TEXT])

    def _checkpoint(self, kind: int, payload: str) -> None:
        if kind != self._kind:
            found = f"a {ROLES[self._kind]} has checkpoints of kind {self._kind}, not {kind}"
            raise refusal(ErrorCategory.CONFIG, "INVALID_CHECKPOINT_KIND", found)
        if self.stream is None:
            raise refusal(ErrorCategory.INTERNAL, "NO_STREAM", "no stream runs: a checkpoint belongs to none")
        if len(payload.encode()) > _MAX_CHECKPOINT_BYTES:
            raise refusal(ErrorCategory.DATA, "CHECKPOINT_TOO_LARGE", f"it is over {_MAX_CHECKPOINT_BYTES} bytes")
        try:
            decoded = _OBJECT.decode(payload)
        except (msgspec.DecodeError, RecursionError):
            raise refusal(ErrorCategory.DATA, "INVALID_CHECKPOINT", "it is no JSON object") from None
        values = self._state.of_stream(self.stream)
        parts: dict[str, Any] = {"values": values} if values else {}
        if self._is_destination and (position := self._proved_position(decoded)) is not None:
            parts["position"] = position
        self._write("checkpoint", checkpoint=payload, **parts)
        self._last_checkpoint, self._has_unsaved = payload, False
        self.effects += 1

    def _proved_position(self, checkpoint: dict[str, Any]) -> ProvedPosition | None:
        records = records_processed(checkpoint)
        if self.inbox.is_ahead(records):
            found = f"{records} records are more than the component was given"
            raise refusal(ErrorCategory.DATA, "CHECKPOINT_AHEAD", found)
        return self.inbox.proved(records)

    @property
    def _is_destination(self) -> bool:
        return ROLES[self._kind] == "destination"

    def _emit_dlq_record(self, stream: str, record: str, message: str, category: str) -> None:
        if self.rejected >= MAX_REJECTED:
            found = f"{MAX_REJECTED} records of this run are rejected already"
            raise refusal(ErrorCategory.DATA, "TOO_MANY_REJECTED", found)
        self.rejected += 1
        self.effects += 1
        shown = {"record": record} if len(record) <= _MAX_RECORD_CHARACTERS else {}
        self._write("rejected", name=stream[:_MAX_TEXT], message=f"{category}: {message}"[:_MAX_TEXT], **shown)

    def _state_get(self, scope: int, key: str) -> str | None:
        return self._state.get(scope, self._stream_of(scope, key), key)

    def _state_put(self, scope: int, key: str, value: str) -> None:
        stream = self._stream_of(scope, key)
        if len(value.encode()) > _MAX_VALUE_BYTES:
            raise refusal(ErrorCategory.CONFIG, "VALUE_TOO_LONG", f"a value has at most {_MAX_VALUE_BYTES} bytes")
        if self._puts >= _MAX_PUTS:
            raise refusal(ErrorCategory.CONFIG, "TOO_MANY_PUTS", f"{_MAX_PUTS} values were put in this run already")
        before = self._state.get(scope, stream, key)
        held = self._state.characters(scope, stream)
        size = held + len(value) + (len(key) if before is None else -len(before))
        if size > _MAX_SCOPE_CHARACTERS:
            # Those of a stream go with each checkpoint.
            raise refusal(
                ErrorCategory.CONFIG, "STATE_TOO_LARGE", "a stream, and each other scope, keeps at most 4 MiB"
            )
        self._puts += 1
        self._has_unreported_puts = True
        self.effects += 1
        self._has_unsaved = self._has_unsaved or scope == PER_STREAM
        self._state.put(scope, stream, key, value)

    def _state_cas(self, scope: int, key: str, expected: str | None, value: str) -> bool:
        if self._state_get(scope, key) != expected:
            return False
        self._state_put(scope, key, value)
        return True

    def _stream_of(self, scope: int, key: str) -> str:
        if scope > CONNECTOR_INSTANCE:
            raise refusal(ErrorCategory.CONFIG, "INVALID_SCOPE", f"Invalid scope: {scope}")
        if len(key.encode()) > _MAX_KEY_BYTES:
            raise refusal(ErrorCategory.CONFIG, "KEY_TOO_LONG", f"a key has at most {_MAX_KEY_BYTES} bytes")
        if scope != PER_STREAM:
            return ""
        if self.stream is None:
            raise refusal(ErrorCategory.CONFIG, "INVALID_SCOPE", "no stream runs, so it has no state")
        return self.stream
