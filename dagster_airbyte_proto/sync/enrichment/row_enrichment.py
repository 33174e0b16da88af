"""An enrichment of the rows of one partition, by one process of its connector.

1. All rows go to its stdin, which is then closed; what it sends until its end are the rows that came of them. Nothing
   in a reply says to which row it belongs, so no row is waited for, and none is matched with another.
2. It runs where Spark computes the partition, and finds there what it needs: the program, the variables that its config
   names, the home folder. The values that it keeps are its own, and end with it.
3. If it fails, the partition fails: rows that it had answered may be among those that it had not.
"""

import base64
import io
import math
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import json as pa_json

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.encoding.sendable import unsendable_rows
from dagster_airbyte_proto.errors import ConfigError, ProtocolViolation
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.connector.destination import Destination
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.enrichment.enrichment_process import (
    ENRICHING,
    Exchange,
    Pace,
    check_connector,
    enrichment_process,
)
from dagster_airbyte_proto.sync.run_log import RunLog, new_run_id

_OF_FRAMES = frozenset(("name", "connector", "config", "config_file", "sandbox"))


class RowEnrichment(NamedTuple):
    """Makes the enriched rows of a partition. It is a value: Spark takes it to where it computes."""

    connection: Connection
    options: Mapping[str, Any]
    home: Path
    settings: Path | None
    rows_per_second: float | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        exchange = Exchange(Pace(self.rows_per_second) if self.rows_per_second else None)
        with (
            _opened(self.connection, self.home, self.settings) as connector,
            enrichment_process(connector, self.options, exchange) as process,
        ):
            for rows in process.replies(_sendable(batches)):
                yield from _batches(rows, schema)


def check_enrichment(enrichment: RowEnrichment) -> None:
    """Raises ConfigError if the connector is no enrichment, if its config does not fit its schema, or for options that
    would do nothing here."""
    connection, rate = enrichment.connection, enrichment.rows_per_second
    doing = f"enriching rows by connection {connection.name}"
    if connection.connector.protocol != "syncmaven":
        found = f"it speaks {connection.connector.protocol}, and only Syncmaven has enrichments"
        raise ConfigError(doing, found, remedy="Name a connection to a Syncmaven enrichment.")
    fields = type(connection).model_fields
    if stray := [name for name in fields.keys() - _OF_FRAMES if getattr(connection, name) != fields[name].default]:
        raise ConfigError(
            doing,
            f"it has {', '.join(sorted(stray))}, which a frame has no use for",
            remedy="Give it connector and config alone. For the rest, name the connector under `transforms` of a sync "
            "or a push, where it has a cache, a rate and `on_error` too.",
        )
    if rate is not None and not (math.isfinite(rate) and rate > 0):
        raise ConfigError(doing, f"rows_per_second is {rate}", remedy="Give a number above 0, or leave it out.")
    with _opened(connection, enrichment.home, enrichment.settings) as connector:
        check_connector(connector, doing)


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


def _sendable(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Returns the batches. Raises ConfigError for one that has a row that cannot be sent."""
    for batch in batches:
        faults = unsendable_rows(batch)
        if faults:
            place, reason = next(iter(faults.items()))
            raise ConfigError(
                ENRICHING,
                f"{len(faults):,} of {batch.num_rows:,} rows cannot be sent; the first is row {place + 1}: {reason}",
                remedy="Leave such rows out, or cast the column, before they are enriched.",
            )
        yield batch


def _batches(rows: Sequence[bytes], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Returns the rows that came back in batches of this schema."""
    if not rows:
        return
    block = max(1 << 20, 2 * max(map(len, rows)))
    # Bytes go out in base64 and come back so. Arrow's parser would take the letters for the bytes.
    coded = [each.name for each in schema if pa.types.is_binary(each.type) or pa.types.is_large_binary(each.type)]
    read = pa.schema([field.with_type(pa.string()) if field.name in coded else field for field in schema])
    options = pa_json.ParseOptions(explicit_schema=read, unexpected_field_behavior="ignore")
    try:
        found = pa_json.read_json(io.BytesIO(b"\n".join(rows)), pa_json.ReadOptions(block_size=block), options)
        for name in set(coded) & set(found.schema.names):
            texts = found.column(name).to_pylist()
            values = [None if text is None else base64.b64decode(text, validate=True) for text in texts]
            place = found.schema.get_field_index(name)
            found = found.set_column(place, pa.field(name, pa.binary()), pa.array(values, pa.binary()))
    except ValueError as error:  # Arrow's errors are such too.
        raise ProtocolViolation(
            ENRICHING, f"a row that came back does not fit the schema of the new rows: {error}"
        ) from error
    missing = [field for field in schema if field.name not in found.schema.names]
    for field in missing:
        found = found.append_column(field, pa.nulls(found.num_rows, field.type))
    yield from found.select(schema.names).cast(schema).combine_chunks().to_batches()
