"""A destination in Python, for tests: writes the batches that it gets into a file of the folder that its config names.

Each run has a file of its own: 0.arrow, 1.arrow, … It takes a checkpoint after each batch. `record` is a record that it
rejects, as JSON; `fail` has it end with an error after the first batch.
"""
# mypy: ignore-errors

import json
import os

import arrow_messages
from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import host, types

_CONFIG: dict = {}


class Destination(exports.Destination):
    def open(self, config_json):
        _CONFIG.update(json.loads(config_json))
        return 3

    def validate(self, session):
        return types.ValidationReport(types.ValidationStatus.WARNING, f"session {session}", ["looked at nothing"])

    def run(self, session, request):
        context = json.loads(request.stream_context_json)
        host.log(2, f"{request.phase.name} {context['write_mode']['mode']} {context['write_mode']['primary_key']}")
        number = sum(name.endswith(".arrow") for name in os.listdir(_CONFIG["folder"]))
        rows = size = batches = 0
        with open(f"{_CONFIG['folder']}/{number}.arrow", "wb") as file:
            while (frame := host.next_batch()) is not None:
                content = host.frame_read(frame, 0, host.frame_len(frame))
                host.frame_drop(frame)
                file.write(content)
                file.flush()
                rows += sum(count for *_, count in arrow_messages.messages(content) if count > 0)
                size, batches = size + len(content), batches + 1
                if batches == 1 and _CONFIG.get("record"):
                    host.emit_dlq_record(context["stream_name"], _CONFIG["record"], "it has no home", "data")
                if _CONFIG.get("fail"):
                    raise _full_error()
                payload = {"kind": "destination", "stream": context["stream_name"], "id": batches}
                host.checkpoint(1, json.dumps({**payload, "records_processed": rows, "bytes_processed": size}))
        written = types.WriteSummary(rows, size, batches, batches, 0)
        return types.RunSummary(types.ConnectorRole.DESTINATION, None, written, None)

    def close(self, session):
        host.log(2, "closed")


def _full_error():
    return Err(
        types.ConnectorError(
            types.ErrorCategory.TRANSIENT_DB, types.ErrorScope.PER_BATCH, "DISK", "the disk is full", True, 5,
            types.BackoffClass.SLOW, False, types.CommitState.AFTER_COMMIT_UNKNOWN, "{}",
        )
    )  # fmt: skip
