"""Full refreshes that a component reads in partitions: processes side by side, all rows once, or none of them."""

import json
import socket
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.components.test_component_syncs import CONFIG, ipc, rows_of, table
from tests.cli.conftest import Place
from tests.support.wasm import guests

pytestmark = pytest.mark.everyday("test_partitions_land_with_all_rows_once")

_PARTITIONED = {"source": {"features": ["partitioned_read"]}}
_ALL = rows_of(1, 2, 3, 4, 5, 6)


def _connect(
    place: Place,
    script: str,
    roles: Mapping[str, Any] = _PARTITIONED,
    launched: Mapping[str, Any] = {},
    **written: Any,
) -> str:
    """A component with a batch of `orders` for each of three partitions."""
    built = guests.as_component(guests.core_module(place.folder, "source"), "source")
    manifest = {**guests.MANIFEST, "roles": roles}
    (place.folder / "source.wasm").write_bytes(guests.with_section(built, "rapidbyte_manifest_v1", manifest))
    parts = {f"part{index}": ipc(rows_of(index + 1, index + 4)) for index in range(3)}
    file = place.connect(
        {},
        connector={"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": "source.wasm"}, **launched},
        config={**CONFIG, **parts, "script_orders": script},
    )
    document = {"streams": ["orders"], "overrides": {"effective_parallelism": 3}, **written}
    Path(file).write_text(json.dumps({**json.loads(Path(file).read_text()), **document}))
    return file


def _contexts(log: str) -> Sequence[Mapping[str, Any]]:
    """The contexts that components were given, in the order of their partitions."""
    found = [json.loads(line.partition("context ")[2]) for line in log.splitlines() if "context {" in line]
    return sorted(found, key=lambda each: int(each.get("partition_index", 0)))


def test_partitions_land_with_all_rows_once(place: Place) -> None:
    swaps = "cas 0 leader - me;cas 1 leader - me"
    file = _connect(place, f"context;{swaps};ipcpart part;checkpoint 0 {{}}", streams=["users", "orders"])
    shown = place.run("sync", file, "--verbose", "--json")
    assert shown.code == 0, shown.err
    orders, users = shown.json["streams"]["orders"], shown.json["streams"]["users"]
    assert (orders["status"], orders["emitted"], orders["committed"]) == ("complete", 6, 6)
    assert table(place, "orders") == _ALL
    words = ("partition_count", "partition_index", "effective_parallelism")
    given = [tuple(each[word] for word in words) for each in _contexts(shown.err)]
    assert given == [(3, 0, 3), (3, 1, 3), (3, 2, 3)]
    # Of each scope one of the three is first.
    assert (shown.err.count("cas true"), shown.err.count("cas false")) == (2, 4)
    # A stream with a cursor is not cut: its state is one.
    assert (users["committed"], users["state"]["cursor_value"]["value"]) == (3, 3)


def test_they_run_at_the_same_time(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def release_all_at_once() -> None:
            for each in [server.accept()[0] for _ in range(3)]:
                each.sendall(b"go")
                each.close()

        threading.Thread(target=release_all_at_once, daemon=True).start()
        allowed = {"permissions": {"network": {"allowed_hosts": ["127.0.0.1"]}}}
        script = f"connect 127.0.0.1 {server.getsockname()[1]};recv 1 2;ipcpart part"
        report = place.json("sync", _connect(place, script, launched=allowed))
    assert report["status"] == "complete"
    assert table(place, "orders") == _ALL


@pytest.mark.parametrize(
    ("fault", "found"),
    [("failpart 1", "rate-limit/BOOM"), ("trappart 1", "the component trapped"), ("spinpart 1", "timeout_seconds")],
)
def test_if_one_fails_no_row_of_the_stream_lands(place: Place, fault: str, found: str) -> None:
    place.json("sync", _connect(place, "ipcpart part"))
    limits = {"limits": {"timeout_seconds": 2 if "spin" in fault else 60}}
    file = _connect(place, f"ipcpart part;ipcpart part;{fault}", launched=limits)
    orders = place.json("sync", file, code=1)["streams"]["orders"]
    assert (orders["status"], orders["committed"]) == ("failed", 0)
    assert found in orders["error"]
    assert table(place, "orders") == _ALL


@pytest.mark.parametrize(
    ("roles", "written", "counts"),
    [
        (_PARTITIONED, {"overrides": {"effective_parallelism": 2}}, [2, 2]),
        (_PARTITIONED, {"overrides": {}, "parallel": 1}, [None]),
        ({"source": {}}, {}, [None]),
    ],
)
def test_the_user_the_host_and_the_manifest_say_how_many(
    place: Place, roles: dict[str, Any], written: dict[str, Any], counts: list[int | None]
) -> None:
    shown = place.run("sync", _connect(place, "context", roles, **written), "--verbose")
    assert [each.get("partition_count") for each in _contexts(shown.err)] == counts


def test_what_they_keep_is_merged(place: Place) -> None:
    file = _connect(place, "get 0 p0;get 0 p1;get 0 p2;ipcpart part;putpart 0 p v")
    place.json("sync", file)
    said = place.run("sync", file, "--verbose").err
    assert (said.count("get none"), said.count("get v")) == (0, 9)


def test_what_one_has_kept_last_stays(place: Place) -> None:
    """Values go from one to the other and back, and are those of the connector's next run."""
    for before, after in (("none", "b"), ("b", "a")):
        swaps = "cas 0 k - a;cas 0 k a b" if before == "none" else "cas 0 k b a"
        said = place.run(
            "sync", _connect(place, f"get 0 k;ipcpart part;{swaps};get 1 n;putpart 1 n v"), "--verbose"
        ).err
        assert said.count("cas true") >= 1
        shown = place.run("sync", _connect(place, "get 0 k;get 1 n0;get 1 n1;get 1 n2;ipcpart part"), "--verbose").err
        assert (shown.count(f"get {after}"), shown.count("get v")) == (3, 9)
