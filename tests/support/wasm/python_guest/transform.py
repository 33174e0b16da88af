"""A transform in Python, for tests: writes the words of all texts large, and rejects the record that `record` has."""
# mypy: ignore-errors

import json
import re

import arrow_messages
from wit_world import exports
from wit_world.imports import host, types

_CONFIG: dict = {}
_WORDS = re.compile(rb"[a-z]{3,}")  # a byte or two that look like letters may be of a number or a time


class Transform(exports.Transform):
    def open(self, config_json):
        _CONFIG.update(json.loads(config_json))
        return 5

    def validate(self, session):
        return types.ValidationReport(types.ValidationStatus.SUCCESS, "fine", [])

    def run(self, session, request):
        if _CONFIG.get("record"):
            host.emit_dlq_record("rows", _CONFIG["record"], "bad", "data")
        rows = size = batches = 0
        while (frame := host.next_batch()) is not None:
            content = bytearray(host.frame_read(frame, 0, host.frame_len(frame)))
            host.frame_drop(frame)
            for begin, end, count in arrow_messages.messages(content):
                content[begin:end] = _WORDS.sub(lambda word: word[0].upper(), content[begin:end])
                rows += max(count, 0)
            out = host.frame_new(len(content))
            host.frame_write(out, bytes(content))
            host.frame_seal(out)
            host.emit_batch(out)
            size, batches = size + len(content), batches + 1
        changed = types.TransformSummary(rows, rows, size, size, batches)
        return types.RunSummary(types.ConnectorRole.TRANSFORM, None, None, changed)

    def close(self, session):
        pass
