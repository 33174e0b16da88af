"""A source of one stream, `readings`, whose rows it makes up. Replace `discover` and `_read` by what reads your data.

`build.py` makes a component of it. `wit_world` is what componentize-py makes of the interface in `wit/` meanwhile.
"""

import json

import arrow_batches
from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import host, types

COLUMNS = [
    ("id", arrow_batches.INT64),
    ("sensor", arrow_batches.UTF8),
    ("celsius", arrow_batches.FLOAT64),
    ("read_at", arrow_batches.TIMESTAMP_MICROS),
]
ROWS_A_BATCH = 10_000
BEGAN_AT_MICROS = 1_767_225_600_000_000
CONFIGS = []
"""The config of each session, by its number. Each call gets a new object of the class, which can keep nothing."""


class Source(exports.Source):
    def open(self, config_json):
        """Gets the config of the connection. What it returns comes back with every other call."""
        config = json.loads(config_json)
        rows = config.get("rows", 1000)
        if not isinstance(rows, int) or rows < 0:
            raise _error(types.ErrorCategory.CONFIG, "BAD_ROWS", f"`rows` is {rows!r}: set it to a number from 0 on")
        CONFIGS.append(config)
        return len(CONFIGS) - 1

    def validate(self, session):
        """`airbyte-proto check`. Look here whether what the config names can be reached."""
        return types.ValidationReport(types.ValidationStatus.SUCCESS, "all is well", [])

    def discover(self, session):
        """Names the streams: columns, ways to read them, the key, and the column that an incremental read goes by."""
        columns = [{"name": name, "data_type": kind, "nullable": name == "celsius"} for name, kind in COLUMNS]
        stream = {
            "name": "readings",
            "schema": {"format": "columns", "data": columns},
            "supported_sync_modes": ["full_refresh", "incremental"],
            "source_defined_cursor": "id",
            "source_defined_primary_key": ["id"],
        }
        return json.dumps({"streams": [stream]})

    def run(self, session, request):
        """Reads one stream. An exception that is no `Err` is a fault of the connector, and ends it."""
        context = json.loads(request.stream_context_json)
        last = ((context.get("cursor_info") or {}).get("last_value") or {}).get("value", 0)
        rows = size = batches = 0
        for batch in _read(last, CONFIGS[session].get("rows", 1000), request.max_records):
            size += _emit(arrow_batches.arrow_stream(COLUMNS, batch))
            rows += len(batch)
            batches += 1
            _take_checkpoint(batches, batch[-1][0], rows, size)
        summary = types.ReadSummary(rows, size, batches, batches, 0)
        return types.RunSummary(types.ConnectorRole.SOURCE, summary, None, None)

    def close(self, session):
        """Is called whatever happened. There is nothing to give back here."""


def _read(last, rows, at_most):
    """Lists of rows, those behind the row `last`."""
    end = rows if at_most is None else min(rows, last + at_most)
    for begin in range(last, end, ROWS_A_BATCH):
        numbers = range(begin + 1, min(begin + ROWS_A_BATCH, end) + 1)
        yield [
            (n, f"sensor-{n % 8}", None if n % 10 == 0 else n % 40 + 0.5, BEGAN_AT_MICROS + n * 1_000_000)
            for n in numbers
        ]


def _emit(batch):
    frame = host.frame_new(len(batch))
    host.frame_write(frame, batch)
    host.frame_seal(frame)
    host.emit_batch(frame)
    return len(batch)


def _take_checkpoint(number, last, rows, size):
    """Says that all rows up to `last` were given. The next incremental run gets it back, as the last value."""
    payload = {
        "kind": "source",
        "stream": "readings",
        "id": number,
        "cursor_field": "id",
        "cursor_value": {"type": "int64", "value": last},
        "records_processed": rows,
        "bytes_processed": size,
    }
    host.checkpoint(0, json.dumps(payload))


def _error(category, code, message, is_retryable=False):
    """An error of the stream that runs. A retryable one is tried again, if the call had no effect yet."""
    scope, backoff = types.ErrorScope.PER_STREAM, types.BackoffClass.NORMAL
    return Err(
        types.ConnectorError(category, scope, code, message, is_retryable, None, backoff, is_retryable, None, None)
    )
