"""A daemon that fails in odd moments, as its HTTP interface shows it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import pytest

from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.launchers.docker import images
from dagster_airbyte_proto.launchers.docker.daemon import error_from_message
from dagster_airbyte_proto.launchers.docker.launcher import DockerLauncher


class _DiesDuringPulls(BaseHTTPRequestHandler):
    """Has no image, and ends in the middle of a pull."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        is_version = self.path.endswith("/version")
        answer = {"ApiVersion": "1.44"} if is_version else {"message": "No such image: acme/source:1"}
        content = json.dumps(answer).encode()
        self.send_response(200 if is_version else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        message = json.dumps({"status": "Downloading", "id": "layer"}).encode() + b"\r\n"
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(message), message))
        self.close_connection = True

    def log_message(self, *_: object) -> None: ...


@contextmanager
def _served(daemon: type[BaseHTTPRequestHandler], monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerLauncher]:
    """The launcher of an image, at this daemon."""
    with ThreadingHTTPServer(("127.0.0.1", 0), daemon) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        for name in ("DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.server_port}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, "127.0.0.1")
        yield DockerLauncher(images.Image("acme/source:1"))
        server.shutdown()


def test_one_that_goes_away_during_a_pull_may_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        _served(_DiesDuringPulls, monkeypatch) as launcher,
        pytest.raises(ConnectorError, match="Docker's daemon went away in the middle of its answer") as caught,
    ):
        launcher.identity()
    assert caught.value.retryable


def test_a_pull_that_does_not_move_any_more_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    released = Event()

    class Stalls(_DiesDuringPulls):
        def do_POST(self) -> None:
            super().do_POST()
            released.wait(60.0)

    monkeypatch.setattr(images, "_STALL_SECONDS", 0.5)
    with (
        _served(Stalls, monkeypatch) as launcher,
        pytest.raises(ConnectorError, match=r"the pull of image acme/source:1 has not moved") as caught,
    ):
        launcher.identity()
    released.set()
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("network", "retryable"), [("airbyte-proto-0123456789ab", True), ("0f" * 32, True), ("no-such", False)]
)
def test_a_network_of_ours_that_was_pruned_is_made_again_by_a_retry(network: str, retryable: bool) -> None:
    error = error_from_message("starting the connector", "acme/source:1", f"network {network} not found")
    assert error.retryable is retryable
