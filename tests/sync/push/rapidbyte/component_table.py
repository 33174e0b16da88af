"""A table whose rows a push sends to a component, which writes the Arrow that it gets into files."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.wasm import guests
from tests.sync.push.pushed_table import SCHEMA, PushedTable, Row


class ComponentTable(PushedTable):
    """The table, and the connection `crm` to a destination of C. `role` is what its manifest says of it."""

    def __init__(self, folder: Path, *, mode: str = "upsert", schema: pa.Schema = SCHEMA, **role: Any) -> None:
        super().__init__(folder, protocol="rapidbyte", mode=mode, schema=schema)
        self.files = folder / "granted"
        self.files.mkdir(exist_ok=True)
        component = folder / "destination.wasm"
        component.write_bytes(guests.destination(self.files, **role))
        self.launch = {"kind": "wasm", "path": str(component)}
        self.config = {"commit_rows": "10"}

    def batches(self) -> list[list[pa.RecordBatch]]:
        """The batches that each run of the component has written, by run."""
        return written_batches(self.files)

    def received(self, stream: str | None = None) -> list[Row]:  # noqa: ARG002 - there is one
        return [row for run in self.batches() for batch in run for row in batch.to_pylist()]


def written_batches(folder: Path) -> list[list[pa.RecordBatch]]:
    """The batches that each run of a component has written into its folder, by run."""
    files = sorted(folder.glob("*.arrow"), key=lambda file: int(file.stem))
    return [_batches(file.read_bytes()) for file in files]


def _batches(content: bytes) -> list[pa.RecordBatch]:
    """The batches of streams that lie one after the other; the last may be cut off by a kill."""
    reader, found = pa.BufferReader(content), []
    while reader.tell() < len(content):
        try:
            found += list(pa.ipc.open_stream(reader))
        except (pa.ArrowInvalid, OSError, EOFError):
            break
    return found
