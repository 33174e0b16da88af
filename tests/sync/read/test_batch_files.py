"""Singer BATCH files: records that a connector writes to files."""

import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.points import FILE_POINTS
from dagster_airbyte_proto.sync.read import batch_files
from dagster_airbyte_proto.sync.report import SyncStatus
from tests.sync.crashes.fake_connection import FakeConnection
from tests.sync.crashes.sync_fork_server import SyncForkServer
from tests.sync.shop import Shop

OpenShop = Callable[..., Shop]
_KILLED = -9


@pytest.fixture(scope="module")
def runner() -> Iterator[SyncForkServer]:
    server = SyncForkServer()
    yield server
    server.close()


@pytest.fixture
def tap(shop: OpenShop, tmp_path: Path) -> Shop:
    made = shop()
    made.protocol = "singer"
    made.connector_options = {"batch_folder": str(tmp_path)}
    return made


def _handed_over(path: Path, ids: Iterable[int], *, ends: bytes = b"\n") -> str:
    """Writes a file of records as a tap does, and returns its URL."""
    lines = ends.join(json.dumps({"id": number, "name": f"é {number}"}).encode() for number in ids)
    path.write_bytes(gzip.compress(lines) if path.suffix == ".gz" else lines)
    return f"file://{path}"


def _of(records: int, *urls: str, **more: Any) -> dict[str, Any]:
    return {"streams": {"users": {"records": records, "batch": list(urls), **more}}}


def test_records_of_files_land_beside_printed_ones_and_the_files_are_removed(tap: Shop, tmp_path: Path) -> None:
    path = tmp_path / "users.json.gz"
    report = tap.sync_of(_of(3, _handed_over(path, range(100, 40_100))))
    assert (report.status, report.streams["users"].emitted) == (SyncStatus.COMPLETE, 40_003)
    assert tap.column("users") == [0, 1, 2, *range(100, 40_100)]
    assert tap.column("users", "name")[-1] == "é 9999"
    assert not path.exists()


def test_a_byte_order_mark_is_no_part_of_the_first_record(tap: Shop, tmp_path: Path) -> None:
    path = tmp_path / "users.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": 7}\n{"id": 8}\n')
    report = tap.sync_of(_of(1, f"file://{path}", encoding={"format": "jsonl"}))
    assert (report.streams["users"].rejected, tap.column("users")) == (0, [0, 7, 8])


@pytest.mark.parametrize(("name", "ends"), [("users.jsonl", b"\n"), ("users.jsonl", b"\r\n\n"), ("u.json.gz", b"\n\n")])
def test_lines_may_end_in_any_way(tap: Shop, tmp_path: Path, name: str, ends: bytes) -> None:
    encoding = {"format": "jsonl"} | ({"compression": "gzip"} if name.endswith(".gz") else {})
    tap.sync_of(_of(1, _handed_over(tmp_path / name, range(10, 15), ends=ends), encoding=encoding))
    assert tap.column("users") == [0, 10, 11, 12, 13, 14]


@pytest.mark.everyday("True-a%20b.json.gz", "False-a b.json.gz")
@pytest.mark.parametrize("name", ["a b.json.gz", "a%20b.json.gz", "é.json.gz"])
@pytest.mark.parametrize("is_encoded", [True, False])
def test_files_are_found_by_literal_and_by_encoded_paths(
    tap: Shop, tmp_path: Path, name: str, *, is_encoded: bool
) -> None:
    path = tmp_path / name
    url = _handed_over(path, [10])
    tap.sync_of(_of(1, path.as_uri() if is_encoded else url))
    assert (tap.column("users"), path.exists()) == ([0, 10], False)


def test_a_line_that_is_no_record_is_rejected_and_the_others_land(tap: Shop, tmp_path: Path) -> None:
    path = tmp_path / "users.json.gz"
    path.write_bytes(gzip.compress(b'{"id":7}\nnonsense\n{"id":8}\n'))
    report = tap.sync_of(_of(1, f"file://{path}"))
    assert tap.column("users") == [0, 7, 8]
    assert report.streams["users"].rejected == 1


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_a_file_without_records_is_removed_even_if_nothing_lands(tap: Shop, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "users.json.gz"
    path.write_bytes(gzip.compress(content))
    report = tap.sync_of(_of(0, f"file://{path}"))
    assert (report.status, report.loads, tap.column("users"), path.exists()) == (SyncStatus.COMPLETE, 1, [], False)


def test_files_of_rows_that_did_not_land_stay(tap: Shop, tmp_path: Path) -> None:
    path = tmp_path / "users.json.gz"
    failing = {**_of(3, _handed_over(path, range(100, 110))), "failure": {"kind": "exit", "after": 2}}
    assert tap.sync_of(failing).status is not SyncStatus.COMPLETE
    assert (tap.column("users"), path.exists()) == ([], True)


@pytest.mark.parametrize(
    ("encoding", "found"),
    [
        ({"format": "parquet"}, "it writes batch files as parquet"),
        ({"format": "jsonl", "compression": "rar"}, "it writes batch files as jsonl, compressed by rar"),
        ({"format": "jsonl", "compression": "gzip"}, "users.jsonl cannot be read"),
    ],
)
def test_an_unreadable_file_fails_the_stream_and_moves_no_state(
    tap: Shop, tmp_path: Path, encoding: dict[str, str], found: str
) -> None:
    url = _handed_over(tmp_path / "users.jsonl", range(5))
    report = tap.sync_of(_of(3, url, encoding=encoding))
    assert report.status is SyncStatus.FAILED
    assert found in str(report.streams["users"].error)
    assert (tap.column("users"), tap.positions(), Path(url[7:]).exists()) == ([], {}, True)


def test_a_missing_file_fails_the_stream(tap: Shop, tmp_path: Path) -> None:
    report = tap.sync_of(_of(3, f"file://{tmp_path}/gone.json.gz"))
    assert "gone.json.gz cannot be read" in str(report.streams["users"].error)
    assert tap.positions() == {}


def test_a_death_between_the_files_end_and_the_states_move_loses_nothing(
    runner: SyncForkServer, tmp_path: Path
) -> None:
    connection = FakeConnection(tmp_path / "home")
    connection.protocol = "singer"
    connection.connector_options = {"batch_folder": str(tmp_path)}
    connection.offer(_of(3, _handed_over(tmp_path / "users.json.gz", range(100, 110))))
    assert runner.sync(connection, (FILE_POINTS[0], 1)) == _KILLED
    assert not (tmp_path / "users.json.gz").exists()
    connection.offer({"streams": {"users": {"records": 5}}})
    assert runner.sync(connection) == 0
    assert connection.column("users") == [0, 1, 2, 3, 4, *range(100, 110)]


# Repeated to 400 MiB.
_BOMBS = {
    "a line without an end": b"0" * (1 << 20),
    "a line of spaces": b" " * (1 << 20),
    "blank lines": b"\n" * (1 << 20),
    "short lines": b"1\n" * (1 << 19),
    "spaces before line ends": b"1\r\n\n" + b" " * ((1 << 20) - 4),
}
_MEASURED = """
import resource, sys, time
import pyarrow.fs
from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.events import BatchEvent
from dagster_airbyte_proto.sync.read.batch_files import record_lines
event = BatchEvent(StreamId(None, "users"), (), "jsonl", "gzip", (b'{"type":"RECORD","stream":"users","record":', b"}"))
def kilobytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before, began, found = kilobytes(), time.process_time(), ""
try:
    for _ in record_lines(event, sys.argv[1]):
        pass
except ConnectorError as error:
    found = str(error)
print(kilobytes() - before, time.process_time() - began)
print(found)
"""


@pytest.mark.everyday("a line without an end", "blank lines")
@pytest.mark.parametrize("kind", _BOMBS)
def test_a_small_file_that_unpacks_to_hundreds_of_megabytes_takes_little_memory_and_time(
    tmp_path: Path, kind: str
) -> None:
    bomb = tmp_path / "users.json.gz"
    bomb.write_bytes(gzip.compress(_BOMBS[kind]) * 400)
    assert bomb.stat().st_size < 1 << 20
    ended = subprocess.run(
        [sys.executable, "-c", _MEASURED, f"file://{bomb}"], capture_output=True, text=True, check=True, timeout=120
    )
    measured, found = ended.stdout.split("\n", 1)
    kilobytes, seconds = map(float, measured.split())
    assert kilobytes < 300_000, measured
    assert seconds < 20, measured
    assert "bytes unpack to more than" in found


def test_a_file_with_a_line_beyond_the_limit_fails_its_stream(
    tap: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_files, "MAX_LINE_BYTES", 9 << 20)
    path = tmp_path / "users.jsonl"
    path.write_bytes(b'{"id":7}\n{"name":"' + b"a" * (20 << 20) + b'"}\n')
    report = tap.sync_of(_of(1, f"file://{path}", encoding={"format": "jsonl"}))
    assert "it has a line of more than 9437184 bytes" in str(report.streams["users"].error)
    assert tap.column("users") == []
