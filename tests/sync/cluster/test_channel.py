"""Who is answered over the channel, and who is not."""

import socket
import ssl
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.checkpoints.deliveries import DeliveryStore
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.errors import CommitUnknown, ConfigError, InternalError, StateConflict, StateUnavailable
from dagster_airbyte_proto.launchers.docker.containers import Container
from dagster_airbyte_proto.sync.cluster import frames, remote_calls
from dagster_airbyte_proto.sync.cluster.channel import Channel, RemoteObject
from dagster_airbyte_proto.sync.cluster.driver_identity import new_identity
from dagster_airbyte_proto.sync.cluster.executor_sync import SyncStore
from dagster_airbyte_proto.sync.cluster.frames import MAX_FRAME_BYTES
from dagster_airbyte_proto.sync.cluster.sync_order import SyncDriver, SyncOutcome
from dagster_airbyte_proto.sync.cluster.sync_task import run_sync_task
from dagster_airbyte_proto.sync.cluster.values import RemoteMethods, from_remote
from dagster_airbyte_proto.sync.connector.container_owners import Ownership, ownership
from tests.sync.cluster.conftest import ServedObjects, Serving
from tests.sync.shop import until


class Answering:
    """Counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def doubled(self, number: int) -> int:
        self.calls += 1
        return 2 * number


@pytest.fixture(autouse=True)
def _gives_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_calls, "_RETRY_FOR_SECONDS", 0.2)


def test_a_call_is_answered_and_its_error_comes_back(serving: Serving) -> None:
    stub = serving.stub(Answering(), Answering)
    assert stub.doubled(21) == 42
    with pytest.raises(InternalError, match="Expected `int`, got `str`"):
        stub.doubled(number="21")
    assert stub.doubled(1) == 2


def test_an_error_that_does_not_cross_the_wire_is_an_answer_too(serving: Serving) -> None:
    class Refusing(Answering):
        def doubled(self, number: int) -> int:
            error = ConfigError("doubling", f"{number} is odd")
            vars(error)["lock"] = threading.Lock()
            raise error

    with pytest.raises(InternalError, match="lock does not cross the wire"):
        serving.stub(Refusing(), Answering).doubled(3)


def test_a_wrong_token_or_a_dead_one_is_not_answered(serving: Serving) -> None:
    target = Answering()
    access = serving.access(target, Answering)
    wrong = serving.link(access._replace(token="guessed")).stub("it", Answering)
    with pytest.raises(StateUnavailable, match="does not answer"):
        wrong.doubled(1)
    stub = serving.link(access).stub("it", Answering)
    assert stub.doubled(1) == 2
    serving.channel.__exit__(None, None, None)
    with pytest.raises(StateUnavailable):
        stub.doubled(1)
    assert target.calls == 1


class _Driver:
    """Notes how the syncs of tasks end."""

    def __init__(self) -> None:
        self.ends: list[SyncOutcome] = []

    def declined(self, attempt: int, outcome: SyncOutcome) -> bool:
        """At the first call another attempt is at work."""
        assert attempt == 0
        self.ends.append(outcome)
        return len(self.ends) > 1


def test_a_task_of_another_version_says_so_and_does_not_fail(serving: Serving) -> None:
    driver = _Driver()
    served = ServedObjects({"driver": RemoteObject(RemoteMethods(SyncDriver), lambda _: driver)})
    access = serving.channel.admit(served)
    assert access.version
    run_sync_task([access._replace(version="9.9")], 0, 0)
    [_, outcome] = driver.ends
    assert outcome.error is not None
    assert "on the executor, and 9.9 on the driver" in str(from_remote(outcome.error))


def test_a_driver_with_another_certificate_is_not_trusted(serving: Serving) -> None:
    target = Answering()
    access = serving.access(target, Answering)
    other = serving.link(access._replace(certificate=new_identity().certificate)).stub("it", Answering)
    with pytest.raises(StateUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        other.doubled(1)
    assert target.calls == 0


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, (MAX_FRAME_BYTES + 1).to_bytes(8), (9).to_bytes(8) + b"no message"],
    ids=["plain", "noise", "long", "no message"],
)
def test_garbage_is_hung_up_on_and_others_are_still_answered(serving: Serving, sent: bytes) -> None:
    access = serving.access(Answering(), Answering)
    with socket.create_connection((access.host, access.port), 20) as plain:
        connection = plain
        if sent[:3] != b"GET":
            context = ssl.create_default_context(cadata=access.certificate)
            context.check_hostname = False
            connection = context.wrap_socket(plain)
        connection.sendall(sent)
        with suppress(ConnectionResetError):
            while connection.recv(1024):
                pass
    assert serving.link(access).stub("it", Answering).doubled(2) == 4


def test_a_call_without_an_answer_is_repeated_unless_it_may_have_had_an_effect(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [ConnectionResetError("cut")]

    def receive(*arguments: Any) -> bytes:
        if failures:
            raise failures.pop()
        return kept(*arguments)

    kept = frames.receive_frame
    monkeypatch.setattr(remote_calls, "receive_frame", receive)
    target = Answering()
    stub = serving.stub(target, Answering)
    assert stub.doubled(2) == 4
    # The first had its effect, and its answer was lost.
    until(lambda: target.calls == 2, "both calls")
    monkeypatch.setattr(remote_calls, "_ONCE", frozenset((("it", "doubled"),)))
    failures.append(ConnectionResetError("cut"))
    with pytest.raises(StateUnavailable, match="it does not answer: cut"):
        stub.doubled(2)
    until(lambda: target.calls == 3, "the third call")


@pytest.mark.parametrize("fails_at", [1, 2], ids=["the greeting", "the request"])
def test_a_call_that_must_not_be_repeated_is_made_again_where_it_was_not_sent(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    sent = 0

    def send(*arguments: Any) -> None:
        nonlocal sent
        sent += 1
        if sent == fails_at:
            raise ConnectionResetError("cut")
        frames.send_frame(*arguments)

    monkeypatch.setattr(remote_calls, "_ONCE", frozenset((("it", "doubled"),)))
    monkeypatch.setattr(remote_calls, "send_frame", send)
    target = Answering()
    assert serving.stub(target, Answering).doubled(2) == 4
    assert target.calls == 1


def test_a_call_that_was_cut_after_a_long_time_is_made_again(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [ConnectionResetError("cut")]

    def receive(*arguments: Any) -> bytes:
        if failures:
            now = time.monotonic()
            monkeypatch.setattr(time, "monotonic", lambda: now + 40)
            raise failures.pop()
        return kept(*arguments)

    kept = frames.receive_frame
    monkeypatch.setattr(remote_calls, "receive_frame", receive)
    assert serving.stub(Answering(), Answering).doubled(2) == 4


def test_a_commit_without_an_answer_is_unknown(serving: Serving) -> None:
    link = serving.link(serving.access(Answering(), Answering)._replace(port=1))
    with pytest.raises(CommitUnknown):
        link.stub("tables", Answering).doubled(1)


def test_syncs_of_one_machine_may_have_the_same_port_in_their_settings() -> None:
    with Channel("127.0.0.1", "127.0.0.1") as first:
        port = first.admit(ServedObjects({})).port
        with Channel("127.0.0.1", "127.0.0.1", port) as second:
            assert port < second.admit(ServedObjects({})).port <= port + 16


def test_a_later_attempt_takes_the_lease_of_an_earlier_one_and_of_no_other_run(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/state.db")
    holders: dict[str, int] = {}
    first, second = (SyncStore(store, "shop", attempt, holders) for attempt in range(2))
    terms: dict[str, Any] = {"run_id": "run-1", "seconds": 60}
    taken = first.acquire("shop", holder="worker 1", **terms)
    later = second.acquire("shop", holder="worker 2", **terms)
    with pytest.raises(StateConflict):
        store.note_folders(taken, ["/lake"])
    with pytest.raises(StateConflict, match="worker 2, attempt 2 has held it"):
        first.acquire("shop", holder="worker 1", **terms)
    with pytest.raises(StateConflict, match="worker 2, attempt 2 has held it"):
        SyncStore(store, "shop", 5, {}).acquire("shop", holder="a run of its own", **terms)
    store.note_folders(later, ["/lake"])


def test_a_task_reaches_no_other_connection(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/state.db")
    of_shop: DeliveryStore = SyncStore(store, "shop", 0, {})  # type: ignore[assignment]  # answers by __getattr__
    other = store.acquire("crm", run_id="run-1", holder="another", seconds=60)
    for call in (
        lambda: of_shop.states(connection="crm"),
        lambda: of_shop.release(lease=other),
        lambda: of_shop.acquire("crm", run_id="run-2", holder="task", seconds=60),
    ):
        with pytest.raises(ConfigError, match="its sync is of shop, not of crm"):
            call()


def test_a_container_of_another_connection_has_an_owner_that_a_task_does_not_know(
    serving: Serving, tmp_path: Path
) -> None:
    store = SyncStore(SqlStore(f"sqlite:///{tmp_path}/state.db"), "shop", 0, {})
    of_shop: DeliveryStore = serving.stub(store, DeliveryStore)
    owner = "pid 7 on elsewhere (started 1, kernel 00000000)"
    labels = {"verb": "read", "connection": "crm", "run": "run-1", "owner": owner}
    container = Container("c", "image", "running", datetime.now(UTC), labels)
    assert ownership(container, lambda: of_shop) is Ownership.UNKNOWN


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux alone has it")
def test_a_machine_that_is_gone_is_noticed_also_while_bytes_are_on_their_way() -> None:
    with socket.socket() as plain:
        frames.keep_alive(plain)
        assert plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
