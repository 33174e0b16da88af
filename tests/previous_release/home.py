"""A home of the previous release: its connections, what their sources have had, and where all of it lies.

Tables and loads hold absolute paths, so a home is made and opened under one fixed path. Beside the home lie its
settings, its connections and their scenarios.

- `shop` has a state for each stream. Its second sync was killed when its load was announced, with rows of every stream.
- `market` has one state for all streams. Its connector has rewritten its config, and the new one names another
  scenario: a sync that loses the stored config finds nothing new.
- `books` is a full refresh that can be resumed. One load of its second generation has landed on a branch of the table,
  and the next one was announced when the sync was killed. It is left out where tables have no branches.
- `days` has partitions, each a slice of its table. It is left out where tables have no slices.
"""

import fcntl
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from dagster_airbyte_proto.testing import fake_source
from dagster_airbyte_proto.testing.folder import FOLDER_FORMAT

FORMATS = {"iceberg": "iceberg", "delta": "delta", "parquet": "parquet", "folder": FOLDER_FORMAT}
"""The formats as the settings have them, by the names of their archives."""
ROOT = Path("/tmp/airbyte-proto-previous-release")
_TIMEOUT_SECONDS = 240.0

KEYS = 5
DELETED_EVERY = 4
# The numbers of records that the sources have had: at the first sync, when the last one was killed, and today.
USERS = (6, 9, 13)
CUSTOMERS = (8, 11, 15)
PRICES = (4, 6, 7)
ORDERS = (5, 5, 8)
VISITS = (7, 7, 9)
BOOKS = (4, 12, 12)
DAYS = {"2026-11-01": 3, "2026-11-02": 5}
# The positions in the generation of `books` that its two attempts have reached.
BOOKS_ON_BRANCH = 4
BOOKS_ANNOUNCED = 8


class PreviousHome:
    """The home with tables of one format."""

    def __init__(self, table_format: str) -> None:
        self.format = table_format
        self.folder = ROOT / table_format
        self.path = self.folder / "home"
        self.warehouse = self.path / "warehouse"
        self.archive = Path(__file__).parent / f"{table_format}.tar.gz"
        self.has_keys = self.has_slices = table_format != "parquet"
        self.has_branches = table_format in ("iceberg", "folder")
        self.has_transforms = table_format in ("iceberg", "folder")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other test runs out of the fixed path, and leaves nothing there. The lock file stays: whoever removed
        it would let in two at once."""
        with (ROOT.parent / f"{ROOT.name}-{self.format}.lock").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            try:
                yield
            finally:
                shutil.rmtree(self.folder, ignore_errors=True)

    def unpack(self) -> None:
        with tarfile.open(self.archive) as archive:
            archive.extractall(self.folder, filter="data")
        self._write_settings()
        self.bring_connector()

    def pack(self) -> None:
        with tarfile.open(self.archive, "w:gz") as archive:
            for path in sorted(self.folder.iterdir()):
                archive.add(path, path.name, filter=_kept)

    def bring_connector(self) -> None:
        """Copies the connector to where the connections look for it."""
        shutil.copyfile(fake_source.__file__, self.connector)

    def configure(self) -> None:
        """Writes the settings and the connections."""
        self._write_settings()
        incremental, whole = {"read": "incremental"}, {"read": "full_refresh", "write": "overwrite"}
        parted = {"partition_by": ["bucket(2, id)"]} if self.has_transforms else {}
        users = {**incremental, **parted, "write": "append"}
        customers = {"customers": {**incremental, "write": "append_dedup"}} if self.has_keys else {}
        self._connect("shop", {"users": users, **customers, "prices": whole})
        self._connect("market", {"*": {**incremental, "write": "append"}})
        if self.has_branches:
            self._connect("books", {"books": whole})
        if self.has_slices:
            self._connect("days", {"sales": whole}, scenario="{{ partition.key }}")

    def offer(self, scenario: str, streams: Mapping[str, Any], **more: Any) -> None:
        """Sets what a source has from now on."""
        self.scenario(scenario).write_text(json.dumps({"streams": streams, **more}))

    def scenario(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def connection(self, name: str) -> str:
        return str(self.folder / f"{name}.yaml")

    def shop_streams(self, stage: int) -> dict[str, Any]:
        """The streams of `shop` at a stage: 0 the first sync, 1 when the last one was killed, 2 today."""
        by_key = {"records": CUSTOMERS[stage], "keys": KEYS, "deleted_every": DELETED_EVERY}
        customers = {"customers": by_key} if self.has_keys else {}
        prices = {"records": PRICES[stage], "incremental": False}
        return {"users": {"records": USERS[stage]}, **customers, "prices": prices}

    def market_streams(self, stage: int) -> dict[str, Any]:
        return {"orders": {"records": ORDERS[stage]}, "visits": {"records": VISITS[stage]}}

    def books_streams(self, stage: int) -> dict[str, Any]:
        return {"books": {"records": BOOKS[stage], "resumable": True}}

    def run(
        self, program: Sequence[str], *words: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs a command of `airbyte-proto` on the home."""
        return subprocess.run(
            [*program, *self.words(*words)],
            cwd=self.folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )

    def words(self, *words: str) -> list[str]:
        """The words of a command on the home."""
        return ["--home", str(self.path), "--settings", str(self._settings), *words]

    def _write_settings(self) -> None:
        spark = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "1"}
        catalog = {"format": FORMATS[self.format]}
        self._settings.write_text(yaml.safe_dump({"lease_seconds": 1, "catalog": catalog, "spark": spark}))

    @property
    def _settings(self) -> Path:
        return self.folder / "settings.yaml"

    @property
    def connector(self) -> Path:
        return self.folder / "fake_source.py"

    def _connect(self, name: str, streams: Mapping[str, Any], *, scenario: str = "") -> None:
        launch = {"kind": "local", "command": ["python3", str(self.connector)]}
        document = {
            "connector": {"protocol": "airbyte", "launch": launch},
            "config": {"scenario": str(self.scenario(scenario or name))},
            "streams": dict(streams),
        }
        Path(self.connection(name)).write_text(yaml.safe_dump(document))


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leaves out logs, and the connector, which is brought anew."""
    is_log = member.name.startswith("home/logs") or member.name.endswith(".log")
    if is_log or member.name == "fake_source.py" or "/derby" in member.name:
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
