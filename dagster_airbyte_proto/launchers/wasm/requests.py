"""The requests to a connector, as calls of its component: open it, ask or run, close it.

Each is a generator of the connector's output (`messages.py`), however it ends: an error of the component, its end in
the middle of a call, or a call without end are lines of that output.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.launchers.process import RunningConnector
from dagster_airbyte_proto.launchers.wasm.exit_reasons import with_reason
from dagster_airbyte_proto.launchers.wasm.host.host_functions import HostFunctions
from dagster_airbyte_proto.launchers.wasm.session import CallTookTooLong, ComponentEnded, ComponentSession, Steps
from dagster_airbyte_proto.protocols.conversation import Invocation, Verb
from dagster_airbyte_proto.protocols.rapidbyte import messages
from dagster_airbyte_proto.protocols.rapidbyte.reported_error import ErrorCategory, ReportedError
from dagster_airbyte_proto.protocols.rapidbyte.source import CONFIG_FILE, RUNS, RUNS_FILE, STREAM_SCOPE, StreamToRun
from dagster_airbyte_proto.protocols.raw_json import exact_json

_END_SECONDS = 10.0


class OpenedComponent(NamedTuple):
    """A component that has started, and the host that it calls."""

    program: RunningConnector
    session: ComponentSession
    host: HostFunctions


def carried_out(invocation: Invocation, component: OpenedComponent, warnings: tuple[str, ...]) -> Steps:
    """Carries out the request. The output begins with the warnings."""
    host = component.host
    for warning in warnings:
        yield messages.line("log", level=1, message=warning)
    try:
        yield from component.session.started()
        yield from _REQUESTS[invocation.verb](invocation, component.session, host)
        yield from component.session.ended()
    except CallTookTooLong as error:
        component.program.stop()
        yield _failure("TIMEOUT", str(error), host.stream, is_retryable=True)
    except ProtocolViolation as error:
        component.program.stop()
        yield _failure("PROTOCOL_VIOLATION", f"{error.doing}: {error.found}", host.stream)
    except ComponentEnded:
        report = component.program.wait(_END_SECONDS)
        said = "it ended" if report is None else with_reason(report).how_it_ended_and_why.unmasked
        yield _failure("COMPONENT_ENDED", said, host.stream, is_retryable=True)
    finally:
        host.close()
    if host.left_out_lines:
        found = f"{host.left_out_lines:,} lines of the connector's log are left out: there are too many for one stream"
        yield messages.line("log", level=1, message=found)


def _failure(code: str, message: str, stream: str | None, *, is_retryable: bool = False) -> bytes:
    return _error(ReportedError(ErrorCategory.INTERNAL, code, message, is_retryable=is_retryable), stream)


def _write(invocation: Invocation, session: ComponentSession, host: HostFunctions) -> Steps:
    """Writes or transforms one stream. An error makes the end of the program a bad one, so that no row counts by it; so
    does a run that ends before it has taken all that came."""
    session.has_failed = True
    opened = yield from _open_component(invocation, session)
    if isinstance(opened, ReportedError):
        yield _error(opened)
        return
    (run,) = RUNS.decode(invocation.files[RUNS_FILE])
    host.begin(run.stream, run.values)
    yield messages.line("started", stream=run.stream)
    answer = yield from session.call_patiently("run", opened, _run_request(str(invocation.verb), run))
    if isinstance(answer, ReportedError):
        yield _error(answer, run.stream)
    elif host.inbox.has_untaken:
        # Rows that it never saw are neither dropped by it, nor written.
        yield _failure("BATCHES_LEFT", "its run ended well, and it had not taken all batches", run.stream)
    else:
        host.inbox.is_over = True
        counts = answer.get("write") or {"records-written": 0, "records-failed": 0}
        proved = host.inbox.proved_by_end(counts["records-written"], counts["records-failed"], host.rejected)
        parts = {} if proved is None else {"position": proved}
        yield messages.line("finished", stream=run.stream, summary=answer, kept=host.kept(), **parts)
        session.has_failed = False
    host.stream = None
    yield from _closed(session, opened)


def _error(error: ReportedError, stream: str | None = None) -> bytes:
    named = {} if stream is None else {"stream": stream}
    return messages.line("error", error=error, **named)


def _open_component(invocation: Invocation, session: ComponentSession) -> Steps:
    """Opens the component with its config."""
    return session.call_patiently("open", invocation.files[CONFIG_FILE].decode())


def _check(invocation: Invocation, session: ComponentSession, _: HostFunctions) -> Steps:
    opened = yield from _open_component(invocation, session)
    if isinstance(opened, ReportedError):
        yield _verdict(opened)
        return
    found = yield from session.call_patiently("validate", opened)
    if isinstance(found, ReportedError):
        yield _verdict(found)
    else:
        yield messages.line("check", **found)
    yield from _closed(session, opened)


def _verdict(error: ReportedError) -> bytes:
    return messages.line("check", status="failed", message=str(error))


def _discover(invocation: Invocation, session: ComponentSession, _: HostFunctions) -> Steps:
    opened = yield from _open_component(invocation, session)
    if isinstance(opened, ReportedError):
        yield _error(opened)
        return
    found = yield from session.call_patiently("discover", opened)
    yield _error(found) if isinstance(found, ReportedError) else messages.line("catalog", catalog=found)
    yield from _closed(session, opened)


def _read(invocation: Invocation, session: ComponentSession, host: HostFunctions) -> Steps:
    opened = yield from _open_component(invocation, session)
    if isinstance(opened, ReportedError):
        yield _error(opened)
        return
    is_well, runs = True, RUNS.decode(invocation.files[RUNS_FILE])
    for run in runs:
        host.begin(run.stream, run.values, exact_json(run.checkpoint).decode())
        yield messages.line("started", stream=run.stream)
        answer = yield from session.call_patiently("run", opened, _run_request("read", run))
        if isinstance(answer, ReportedError):
            yield _error(answer, run.stream)
            is_well = False
        else:
            host.end_source_stream()
            while host.output:
                yield host.output.popleft()
            yield messages.line("finished", stream=run.stream, summary=answer)
        host.stream = None
    # Now, and not once each stream has run: components that read other partitions put values meanwhile.
    whole = [run.stream for run in runs if run.context.get("sync_mode") == "full_refresh"]
    kept = {**{f"{STREAM_SCOPE}{name}": host.kept_of(name) for name in whole}, **host.kept()}
    if is_well and any(kept.values()):
        yield messages.line("kept", kept=kept)
    yield from _closed(session, opened)


def _run_request(phase: str, run: StreamToRun) -> Mapping[str, Any]:
    written = exact_json(run.context).decode()
    records = run.dry_run_records
    return {"phase": phase, "stream-context-json": written, "dry-run": records is not None, "max-records": records}


def _closed(session: ComponentSession, opened: int) -> Steps:
    """Closes the session. All is done by then, so an error of it is a warning and no more."""
    answer = yield from session.call("close", opened)
    if isinstance(answer, ReportedError):
        yield messages.line("log", level=1, message=f"the connector could not close: {answer}")


_REQUESTS: Mapping[Verb, Callable[[Invocation, ComponentSession, HostFunctions], Steps]] = {
    Verb.CHECK: _check,
    Verb.DISCOVER: _discover,
    Verb.READ: _read,
    Verb.WRITE: _write,
    Verb.TRANSFORM: _write,
}
