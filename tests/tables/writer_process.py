"""A process that lands one load in tables that need no JVM, and gets a signal of its own making on the way."""

import subprocess
import sys
from pathlib import Path

from dagster_airbyte_proto.tables.parquet.tables import ParquetTables
from dagster_airbyte_proto.testing.folder.tables import FolderTables

_WRITER = """
import os, signal, sys
from importlib import import_module
from pathlib import Path
import msgspec
from dagster_airbyte_proto import points
from dagster_airbyte_proto.loads.load import StagedRows
module, name, root, load_id, point, number = sys.argv[1:]
load = msgspec.json.decode(sys.stdin.buffer.read(), type=StagedRows)
points.arm(lambda reached: os.kill(os.getpid(), int(number)) if reached == point else None)
print(getattr(import_module(module), name)(Path(root)).commit(load_id, load).was_there)
"""


def start_writer(
    tables: type[FolderTables] | type[ParquetTables], root: Path, load: bytes, point: str, number: int
) -> subprocess.Popen[bytes]:
    """Lands `load` as l1, and sends itself the signal when it reaches the point; 0 sends none."""
    named = [tables.__module__, tables.__name__]
    command = [sys.executable, "-c", _WRITER, *named, str(root), "l1", point, str(number)]
    staged = root / "load.json"
    staged.write_bytes(load)
    with staged.open("rb") as stdin:
        return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE)
