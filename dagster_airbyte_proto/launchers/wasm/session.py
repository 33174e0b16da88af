"""A session with a component: calls its functions, and serves the calls that it makes meanwhile. One thread.

Everything here is a generator, so that whoever reads the connector decides how long it waits: each step yields a piece
of the connector's output, or None if nothing came within `wait_seconds`, however many calls were served meanwhile: one
that waits for a server looks at its socket all the time. So there is no thread of our own, but for the look-up of a
name (`connecting.py`), and a slow reader slows the connector: it gets its replies when its output is read.

The limit of time holds for one call, and counts the connector's own time: what it takes while we wait for it, and what
it takes between two looks at it of which the second finds nothing either. It may spin, sleep or wait for what never
comes: we stop waiting, and end it. A transform's run has the limit for each of its batches: how many there are is not
for the transform to say.

A connector that logs without a pause never lets us wait: the next message is there before we have looked at the last.
So serving a call that expects no reply counts too. One that expects a reply has us wait for the next one, and what we
do meanwhile (a batch that is taken in, a server that is waited for) is not the connector's time.
"""

import time
from collections import Counter
from collections.abc import Generator, Sequence
from typing import Any

from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.launchers.process import RunningConnector
from dagster_airbyte_proto.launchers.wasm.host.host_functions import HostFunctions
from dagster_airbyte_proto.protocols.rapidbyte.component.interface import ROLE_FUNCTIONS
from dagster_airbyte_proto.protocols.rapidbyte.component.wire import (
    CommandAnswer,
    MessageReader,
    Ready,
    command,
    end_command,
    reply_to,
)
from dagster_airbyte_proto.protocols.rapidbyte.component.wit_types import Tagged
from dagster_airbyte_proto.protocols.rapidbyte.reported_error import ReportedError

Steps = Generator[bytes | None, None, Any]
_START_SECONDS = 600.0
"""The limit for loading a component. A large one may have to be compiled."""
_PAUSE_STEP_SECONDS = 0.25
_IDLE_SECONDS = 0.05
_LEAST_STEP_SECONDS = 0.02
"""A reader of several components waits for none of them. Each still has time to be served more than one call."""


class ComponentEnded(Exception):
    """The component ended while it was called. It stays within this room."""


class CallTookTooLong(Exception):
    """A call took more time than the connector has for it. It stays within this room."""

    def __init__(self, name: str, seconds: float, spent: str = "") -> None:
        took = f"its call {name} took more than {seconds:g} s of its own time{spent}"
        super().__init__(f"{took} (limits: timeout_seconds): it was ended")


class _UnansweredCalls:
    """The calls without a reply that one call of the connector makes, and the seconds that they take us."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._counts: Counter[str] = Counter()

    def add(self, name: str, seconds: float) -> None:
        self.seconds += seconds
        self._counts[name] += 1

    def share_of(self, all_seconds: float) -> str:
        """Names the call that took most of this time, if one did."""
        if self.seconds * 2 < all_seconds or not self._counts:
            return ""
        [(name, count)] = self._counts.most_common(1)
        return f", most of it by {count:,} calls of {name}"


class ComponentSession:
    """The calls of one running component. `has_failed` once what it was asked for did not come to a good end.

    `is_driven_by_writer` while who drives it has more input for it.
    """

    def __init__(self, program: RunningConnector, role: str, host: HostFunctions, timeout_seconds: float) -> None:
        self.wait_seconds = 0.0
        self.has_failed = False
        self.is_driven_by_writer = False
        self._program, self._host = program, host
        self._functions = {each.name: (number, each) for number, each in enumerate(ROLE_FUNCTIONS[role], start=1)}
        self._timeout_seconds = timeout_seconds
        self._reader = MessageReader()
        self._silent_since: float | None = None
        self._step_ends_at = 0.0

    def begin_step(self, wait_seconds: float) -> None:
        """Notes that a step begins, which waits so long for output."""
        self.wait_seconds = wait_seconds
        self._step_ends_at = time.monotonic() + max(wait_seconds, _LEAST_STEP_SECONDS)

    def started(self) -> Steps:
        """Waits until the component is loaded. Returns whether it had to be compiled."""
        waited = 0.0
        while True:
            chunk, seconds = self._chunk(_START_SECONDS - waited)
            waited += seconds
            if chunk is None and waited >= _START_SECONDS:
                raise CallTookTooLong("start", _START_SECONDS)
            if chunk is None:
                yield None
                continue
            for message in self._reader.feed(chunk):
                if isinstance(message, Ready):
                    return message.was_compiled

    def call(self, name: str, *arguments: Any) -> Steps:
        """Calls a function and returns its value, or the error that it reports."""
        number, function = self._functions[name]
        waited = self._write(command(number, function, arguments), name, 0.0)
        unanswered = _UnansweredCalls()
        while True:
            chunk, seconds = self._chunk(self._timeout_seconds - waited)
            waited += seconds
            if chunk is None and waited >= self._timeout_seconds:
                raise CallTookTooLong(name, self._timeout_seconds)
            if chunk is None:
                yield None
                continue
            served_from = time.monotonic()
            for message in self._reader.feed(chunk):
                if isinstance(message, CommandAnswer):
                    value: Tagged = message.value(function)
                    return value.payload if value.case == "ok" else ReportedError.from_wit(value.payload)
                if isinstance(message, Ready):
                    continue
                if self._host.asks_transform_further(message):
                    waited, unanswered = 0.0, _UnansweredCalls()
                    self._host.note_answer()
                    while self._host.output:
                        yield self._host.output.popleft()
                while self._host.has_to_wait(message):
                    # A writer has the batch that is waited for: a nap before it may give it was half of all time.
                    if not self.is_driven_by_writer:
                        time.sleep(min(self.wait_seconds, _IDLE_SECONDS))
                    yield None
                while self._host.is_connecting(message, min(self.wait_seconds, _IDLE_SECONDS)):
                    yield None
                result = self._host.answer(message)
                if not message.expects_reply:
                    unanswered.add(message.function.name, time.monotonic() - served_from)
                while self._host.output:
                    yield self._host.output.popleft()
                if message.expects_reply:
                    waited = self._write(reply_to(message.function, result), name, waited)
                elif (spent := waited + unanswered.seconds) >= self._timeout_seconds:
                    raise CallTookTooLong(name, self._timeout_seconds, unanswered.share_of(spent))
                if time.monotonic() >= self._step_ends_at:
                    yield None
                served_from = time.monotonic()

    def call_patiently(self, name: str, *arguments: Any) -> Steps:
        """Calls a function again while its error allows it, unless the call had an effect here already."""
        tries = 0
        while True:
            effects = self._host.effects
            answer = yield from self.call(name, *arguments)
            tries += 1
            if not isinstance(answer, ReportedError) or self._host.effects != effects:
                return answer
            pause = answer.pause_seconds(tries)
            if pause is None:
                return answer
            yield from self._paused(pause)

    def ended(self) -> Steps:
        """Ends the component, which has been closed, and reads what is left of its output."""
        self._write(end_command(), "end", 0.0)
        waited = 0.0
        while waited < self._timeout_seconds:
            chunk = self._program.read(self.wait_seconds)
            if chunk == b"":
                return
            waited += self.wait_seconds
            if chunk is None:
                yield None
        raise CallTookTooLong("end", self._timeout_seconds)

    def _chunk(self, limit_seconds: float) -> tuple[bytes | None, float]:
        """Returns its output, and the seconds that we waited for it."""
        before = time.monotonic()
        chunk = self._program.read(max(0.0, min(self.wait_seconds, limit_seconds)))
        if chunk == b"":
            raise ComponentEnded
        now = time.monotonic()
        # Whoever has written nothing yet did not wait for us, whatever we did meanwhile.
        began = before if chunk is not None or self._silent_since is None else self._silent_since
        self._silent_since = now if chunk is None else None
        return chunk, now - began

    def _write(self, pieces: Sequence[bytes], name: str, waited: float) -> float:
        """Writes a message. Returns `waited`, with the time that the component took to read it."""
        for piece in _merged(pieces):
            rest = memoryview(piece)
            while rest:
                before = time.monotonic()
                limit = self._timeout_seconds - waited
                if limit <= 0:
                    raise CallTookTooLong(name, self._timeout_seconds)
                try:
                    rest = rest[self._program.write(rest, min(limit, _PAUSE_STEP_SECONDS)) :]
                except ConnectorError as error:
                    raise ComponentEnded from error
                waited += time.monotonic() - before
        return waited

    def _paused(self, seconds: float) -> Steps:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, self.wait_seconds, _PAUSE_STEP_SECONDS))
            yield None


def _merged(pieces: Sequence[bytes], limit: int = 64 << 10) -> list[bytes]:
    """The pieces with the small ones joined: a write for each would cost more than the copy."""
    if sum(map(len, pieces)) <= limit:
        return [b"".join(pieces)]
    return [each for each in pieces if each]
