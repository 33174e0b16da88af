"""An enrichment of the rows of one partition, by one process of its connector.

1. All rows go to its stdin, which is then closed; what it sends until its end are the rows that came of them. Nothing
   in a reply says to which row it belongs, so no row is waited for, and none is matched with another.
2. It runs where Spark computes the partition, and finds there what it needs: the program, the variables that its config
   names, the home folder. The values that it keeps are its own, and end with it.
3. If it fails, the partition fails: rows that it had answered may be among those that it had not.
"""

import io
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyarrow import json as pa_json

from dagster_airbyte_proto.checkpoints.kept_values import Asset, KeptValue, Key
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.encoding.record_lines import RecordFrame, record_lines
from dagster_airbyte_proto.encoding.sendable import unsendable_rows
from dagster_airbyte_proto.errors import ConfigError, ConnectorError, ProtocolViolation
from dagster_airbyte_proto.launchers.process import RunningConnector
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.events import ErrorEvent, LogEvent, PlainLine
from dagster_airbyte_proto.protocols.syncmaven import enrichment, messages
from dagster_airbyte_proto.protocols.syncmaven.state_calls import speaks_as_specified
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.push.push_context import Destination
from dagster_airbyte_proto.sync.run_log import RunLog, new_run_id
from dagster_airbyte_proto.sync.state_server.served_values import served_values

_WAIT_SECONDS = 0.25
_LAST_WORDS_SECONDS = 10.0
_HANG_SECONDS = 900.0
_MAX_LINE_BYTES = 64 << 20
_DOING = "enriching rows"


class RowEnrichment(NamedTuple):
    """Makes the enriched rows of a partition. It is a value: Spark takes it to where it computes."""

    connection: Connection
    options: Mapping[str, Any]
    home: Path
    settings: Path | None

    def __call__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with _opened(self.connection, self.home, self.settings) as connector:
            is_as_specified = speaks_as_specified(connector.spec().message)
            asset = Asset(self.connection.name, StreamId.of("rows"))
            with served_values(connector, _NothingKept(), asset, check=lambda: None) as served:
                running = connector.connector.launch(enrichment.invocation(), served.variables)
                process = _Process(connector, running, schema)
                try:
                    opening = enrichment.opening_line(
                        connector.config.current, self.options, self.connection.name, is_as_specified=is_as_specified
                    )
                    process.write(opening)
                    for batch in batches:
                        process.write(_lines(batch))
                        yield from process.rows()
                    process.end()
                    yield from process.rows()
                finally:
                    running.stop()


def check_enrichment(connection: Connection, home: Path, settings: Path | None) -> None:
    """Raises ConfigError if the connector is no enrichment, or its config does not fit its schema."""
    if connection.connector.protocol != "syncmaven":
        found = f"it speaks {connection.connector.protocol}, and only Syncmaven has enrichments"
        raise ConfigError(f"enriching rows by connection {connection.name}", found)
    with _opened(connection, home, settings) as connector:
        reason = enrichment.refusal(connector.spec().message)
        if reason is not None:
            raise ConfigError(f"enriching rows by connection {connection.name}", reason)
        connector.check_config()


@contextmanager
def _opened(connection: Connection, home: Path, settings: Path | None) -> Iterator[Destination]:
    """The connector, on the machine where this runs. Its warnings and errors go to stderr, which Spark keeps."""
    found = Settings.load(home, settings)
    found.make_home()
    with (
        tempfile.TemporaryDirectory(prefix="airbyte-proto-enrich-") as folder,
        RunLog(Path(folder), new_run_id(), on_line=_tell) as log,
        Engine(found) as engine,
    ):
        yield engine.destination(connection, log)


def _tell(level: str, text: str) -> None:
    if level in ("ERROR", "FATAL", "WARN"):
        sys.stderr.write(f"{level} {text}\n")


def _lines(batch: pa.RecordBatch) -> memoryview:
    faults = unsendable_rows(batch)
    if faults:
        place, reason = next(iter(faults.items()))
        raise ConfigError(
            _DOING,
            f"{len(faults):,} of {batch.num_rows:,} rows cannot be sent; the first is row {place + 1}: {reason}",
            remedy="Leave such rows out, or cast the column, before they are enriched.",
        )
    return record_lines(batch, RecordFrame(*enrichment.ROW_FRAME))


class _NothingKept:
    """A ValueStore without values."""

    def kept_value(self, asset: Asset, key: Key) -> bytes | None:  # noqa: ARG002 - there is none
        return None

    def kept_values(self, asset: Asset, prefix: Key = ()) -> Iterator[KeptValue]:  # noqa: ARG002 - there are none
        return iter(())

    def count_kept_values(self, asset: Asset) -> tuple[int, int]:  # noqa: ARG002 - there are none
        return 0, 0


class _Process:
    """A running enrichment: its input, and the rows that it has sent so far."""

    def __init__(self, connector: Destination, running: RunningConnector, schema: pa.Schema) -> None:
        self._connector, self._running, self._schema = connector, running, schema
        self._unfinished = b""
        self._rows: list[bytes] = []
        self._error: str | None = None

    def write(self, data: bytes | memoryview) -> None:
        """Writes lines, and takes in what comes meanwhile. Raises ConnectorError."""
        view, moved_at = memoryview(data), time.monotonic()
        while view:
            try:
                taken = self._running.write(view, _WAIT_SECONDS)
            except ConnectorError as error:
                self._read_to_end()
                report = self._running.wait(_LAST_WORDS_SECONDS)
                raise self._failure(report.how_it_ended_and_why if report else error.found) from error
            view = view[taken:]
            chunk = self._running.read(0.0)
            self._take(chunk or b"")
            if taken or chunk:
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > _HANG_SECONDS:
                raise self._failure("it reads nothing any more")

    def end(self) -> None:
        """Closes the input, and takes in the rest until the process has ended. Raises ConnectorError if it failed."""
        self._running.close_input()
        self._read_to_end()
        report = self._running.wait(_HANG_SECONDS)
        if report is None or not report.ended_cleanly:
            raise self._failure(report.how_it_ended_and_why if report else "it closed its output and did not end")

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The rows that have come since the last call."""
        if not self._rows:
            return
        text = b"\n".join(self._rows)
        block = max(1 << 20, 2 * max(map(len, self._rows)))
        self._rows = []
        options = pa_json.ParseOptions(explicit_schema=self._schema, unexpected_field_behavior="ignore")
        try:
            found = pa_json.read_json(io.BytesIO(text), pa_json.ReadOptions(block_size=block), options)
        except pa.ArrowInvalid as error:
            raise ProtocolViolation(
                _DOING, f"a row that came back does not fit the schema of the new rows: {error}"
            ) from error
        missing = [field for field in self._schema if field.name not in found.schema.names]
        for field in missing:
            found = found.append_column(field, pa.nulls(found.num_rows, field.type))
        yield from found.select(self._schema.names).cast(self._schema).combine_chunks().to_batches()

    def _read_to_end(self) -> None:
        moved_at = time.monotonic()
        while (chunk := self._running.read(_WAIT_SECONDS)) != b"":
            self._take(chunk or b"")
            if chunk:
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > _HANG_SECONDS:
                raise self._failure("it hangs")
        self._take(b"\n")

    def _take(self, chunk: bytes) -> None:
        *lines, self._unfinished = (self._unfinished + chunk).split(b"\n")
        if len(self._unfinished) > _MAX_LINE_BYTES:
            raise ProtocolViolation(_DOING, f"a line of over {_MAX_LINE_BYTES:,} bytes")
        for line in filter(None, lines):
            found = messages.reply(line)
            if isinstance(found, messages.EnrichedRow):
                self._rows.append(msgspec.json.encode(found.row))
            elif isinstance(found, ErrorEvent):
                self._error = self._error or found.summary
            elif isinstance(found, LogEvent):
                self._connector.log.write(found.level, found.message)
            elif isinstance(found, PlainLine):
                self._connector.log.write("DEBUG", found.line.decode(errors="replace")[:4000])
        if self._error is not None:
            raise self._failure(self._error)

    def _failure(self, found: str) -> ConnectorError:
        return ConnectorError(_DOING, self._connector.mask.text(self._error or found))
