"""Components that get batches, and end their run well without having taken all of them: none of these counts."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from dagster_airbyte_proto.protocols.conversation import Verb
from dagster_airbyte_proto.protocols.rapidbyte import messages
from tests.launchers.wasm.conftest import Component, invocation

_BATCH = messages.line("batch", stream="users", rows=1, bytes=3) + b"abc"


def _written(component: Component, verb: Verb, script: str) -> tuple[list[dict[str, Any]], bool]:
    """The lines of a run that gets one batch, and whether it ended well."""
    request = invocation(verb, {"script": script})._replace(takes_input=True)
    running = component.launcher().launch(request, environment={})
    lines: list[dict[str, Any]] = []
    try:
        assert running.write(_BATCH, 1.0) == len(_BATCH)
        running.close_input()
        while (chunk := running.read(60.0)) != b"":
            assert chunk is not None, "nothing came in time"
            lines.append(json.loads(chunk))
        report = running.wait(60.0)
        assert report is not None
        return lines, report.ended_cleanly
    finally:
        running.stop()


@pytest.mark.parametrize(("role", "verb"), [("destination", Verb.WRITE), ("transform", Verb.TRANSFORM)])
def test_a_run_that_leaves_a_batch_has_failed(built: Callable[[str], Component], role: str, verb: Verb) -> None:
    lines, ended_well = _written(built(role), verb, "log 2 bye")
    assert [line["error"][1] for line in lines if "error" in line] == ["BATCHES_LEFT"]
    assert not ended_well and "finished" not in [line["type"] for line in lines]
    assert lines[-1]["message"] == "closed"
    lines, ended_well = _written(built(role), verb, "next")
    assert ended_well and "finished" in [line["type"] for line in lines]
