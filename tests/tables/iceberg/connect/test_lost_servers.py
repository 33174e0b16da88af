"""A Connect server that dies, or is started again, under a sync, and servers beside each other in one process."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.tables.spark.connect_retries import ServerRetries
from tests.support.connect_server import ConnectServer, run_alone, running_server, without_spark
from tests.support.network.ports import free_port
from tests.sync.shop import until
from tests.tables.iceberg.connect.remote_connections import RemoteShop

pytestmark = [
    pytest.mark.spark,
    pytest.mark.usefixtures("_spark_connect"),
    pytest.mark.timeout(600),
]
_MINUTE = 60.0
_TOKEN = "correct-horse"
# The command line, which waits behind the announcement of a load until a file exists.
_HELD_SYNC = """
import sys
from pathlib import Path
from dagster_airbyte_proto import points
from dagster_airbyte_proto.cli.main import main
from dagster_airbyte_proto.testing.crash_points import crash_hook
log, go, *words = sys.argv[1:]
points.arm(crash_hook("table.committing", log, until=Path(go)))
sys.exit(main(words))
"""
# As Dagster's code server is: one process for many syncs.
_SYNCS = """
import json, sys
from pathlib import Path
from dagster_airbyte_proto import Connection, sync
home, connection, settings = sys.argv[1:]
for _ in sys.stdin:
    report = sync(Connection.from_file(Path(connection)), home=home, settings=Path(settings)).as_json()
    print(json.dumps([report["status"], report["streams"]["users"]["committed"]]), flush=True)
"""
_SESSION = """
import sys
from dagster_airbyte_proto import SparkSessionResource
from dagster_airbyte_proto.errors import ConfigError
for remote in sys.argv[1:]:
    try:
        session = SparkSessionResource(remote=remote.strip()).spark_session
        print(session.conf.get("spark.sql.catalog.lake.uri"), session.range(3).count(), flush=True)
    except ConfigError as error:
        print(error, flush=True)
"""


class _HeldSync:
    """A sync of a process of its own, whose load is announced and not yet committed."""

    def __init__(self, shop: RemoteShop) -> None:
        self._go = shop.folder / "go"
        log = shop.folder / "points.txt"
        words = ["--home", shop.home, "--settings", shop.home / "settings.yaml", "sync", shop.connection_file, "--json"]
        command = [sys.executable, "-c", _HELD_SYNC, log, self._go, *words]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [*map(str, command)], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=without_spark()
        )
        until(lambda: self._has_ended or (log.exists() and "table.committing" in log.read_text().split()), "its load")

    @property
    def _has_ended(self) -> bool:
        return self.process.poll() is not None

    def commit(self) -> None:
        self._go.touch()

    def ended(self) -> tuple[int, str]:
        """Returns the exit code, and all that it said."""
        out, errors = self.process.communicate(timeout=2 * _MINUTE)
        return self.process.returncode, out + errors


@contextmanager
def _held_sync(shop: RemoteShop) -> Iterator[_HeldSync]:
    held = _HeldSync(shop)
    try:
        yield held
    finally:
        held.process.kill()


class _LostSync(NamedTuple):
    """A sync whose server died before it committed: its connection, its exit code, what it said, and how long it took
    from then on."""

    shop: RemoteShop
    code: int
    said: str
    seconds: float


def _sync_without_server(folder: Path, port: int, *, is_interrupted: bool) -> _LostSync:
    with ExitStack() as running:
        server = running.enter_context(running_server(folder, port=port, token=_TOKEN))
        spark = {"spark.remote": server.url, "spark.connect.authenticate.token": _TOKEN}
        shop = RemoteShop(folder / "shop", server, write="append", spark=spark)
        shop.offer({"streams": {"users": {"records": 3}}})
        with _held_sync(shop) as held:
            running.close()
            held.commit()
            began = time.monotonic()
            if is_interrupted:
                held.process.send_signal(signal.SIGINT)
            code, said = held.ended()
            return _LostSync(shop, code, said, time.monotonic() - began)


@pytest.mark.nightly
def test_a_dead_server_ends_the_sync_within_a_minute_and_the_next_one_recovers(tmp_path: Path) -> None:
    port = free_port()
    shop, code, said, seconds = _sync_without_server(tmp_path, port, is_interrupted=False)
    assert code == 1, said
    assert seconds < _MINUTE, said
    assert f"the Spark Connect server sc://127.0.0.1:{port} does not answer" in said
    assert "stays announced" in said and "airbyte-proto recover shop" in said
    assert _TOKEN not in said
    assert len(shop.store.announced_loads("shop")) == 1
    with running_server(tmp_path, port=port, token=_TOKEN):
        report = shop.synced()
        rows = shop.query(f"select id from lake.{shop.namespace}.users order by id")["rows"]
    assert report["recovered_loads"] == 1
    assert rows == [[0], [1], [2]]


@pytest.mark.nightly
def test_ctrl_c_waits_for_no_dead_server(tmp_path: Path) -> None:
    shop, code, said, seconds = _sync_without_server(tmp_path, free_port(), is_interrupted=True)
    assert code in (1, 130), said
    assert seconds < _MINUTE / 3, said
    assert len(shop.store.announced_loads("shop")) == 1


@pytest.mark.nightly
def test_a_server_that_is_started_again_between_two_syncs_of_a_process_gets_a_new_session(tmp_path: Path) -> None:
    with ExitStack() as running:
        server = running.enter_context(running_server(tmp_path, port=free_port()))
        shop = RemoteShop(tmp_path / "shop", server, write="append")
        sync = running.enter_context(_syncs(shop))
        assert sync(3) == ["complete", 3]
        server.process.kill()
        server.process.wait()
        running.enter_context(running_server(tmp_path, port=int(server.url.rpartition(":")[2])))
        assert sync(5) == ["complete", 2]


def test_a_process_has_one_session_of_a_remote_and_one_with_a_jvm_is_refused(connect_server: ConnectServer) -> None:
    ended = run_alone(_SESSION, connect_server.url, connect_server.url, " ")
    first, again, local, *_ = ended.stdout.splitlines()
    assert first.startswith("jdbc:sqlite:") and first.endswith(" 3")
    assert again == first
    assert local == (
        "starting Spark: the session of this process is one of Spark Connect, and one with a JVM (no spark.remote)"
        " is wanted"
    )


def test_a_request_without_a_server_is_given_up_after_half_a_minute_and_the_next_ones_at_once() -> None:
    retries, now = ServerRetries("sc://127.0.0.1:1"), time.monotonic()
    assert not retries.is_over(now - _MINUTE / 3)
    assert retries.is_over(now - _MINUTE / 2)
    assert retries.is_over(now)


@pytest.mark.nightly
def test_a_server_that_does_not_answer_is_an_error_and_leaves_the_session_of_another(
    connect_server: ConnectServer,
) -> None:
    """The second server does not run, and must not be taken for the first: that is an error within a minute."""
    missing = f"sc://127.0.0.1:1/;authorization=Bearer%20{_TOKEN}"
    began = time.monotonic()
    ended = run_alone(_SESSION, connect_server.url, missing, connect_server.url)
    assert time.monotonic() - began < 1.5 * _MINUTE
    first, found, remedy, again, *_ = ended.stdout.splitlines()
    assert "the Spark Connect server sc://127.0.0.1:1 does not answer" in found
    assert "Does the server that spark.remote names run" in remedy
    assert _TOKEN not in ended.stdout + ended.stderr
    assert again == first


@pytest.mark.usefixtures("spark")
def test_a_sync_on_connect_beside_a_jvm_is_refused_before_its_connector_starts(tmp_path: Path) -> None:
    shop = RemoteShop(tmp_path, ConnectServer("sc://127.0.0.1:1", cast(Any, None), tmp_path), write="append")
    shop.program = ["touch", str(tmp_path / "started")]
    shop.offer({"streams": {"users": {"records": 3}}})
    with pytest.raises(ConfigError, match="the session of this process is one with a JVM"):
        shop.sync()
    assert not (tmp_path / "started").exists()


@pytest.mark.nightly
def test_two_servers_are_used_side_by_side(tmp_path: Path, connect_server: ConnectServer) -> None:
    with running_server(tmp_path) as other:
        ended = run_alone(_SESSION, connect_server.url, other.url, connect_server.url)
    first, second, third = ended.stdout.splitlines()
    assert str(tmp_path) in second
    assert first == third != second


@contextmanager
def _syncs(shop: RemoteShop) -> "Iterator[Callable[[int], Any]]":
    """Yields a function that syncs so many records in one process, and returns the status and the committed rows."""
    words = [sys.executable, "-c", _SYNCS, shop.home, shop.connection_file, shop.home / "settings.yaml"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*map(str, words)], stdin=pipe, stdout=pipe, text=True, env=without_spark()) as process:
        assert process.stdin is not None and process.stdout is not None
        writer, reader = process.stdin, process.stdout

        def sync(records: int) -> Any:
            shop.offer({"streams": {"users": {"records": records}}})
            writer.write("\n")
            writer.flush()
            return json.loads(reader.readline())

        try:
            yield sync
        finally:
            process.kill()
