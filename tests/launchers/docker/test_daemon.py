"""A daemon that fails in odd moments, as its HTTP interface shows it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import pytest

from dagster_airbyte_proto.errors import ConfigError, ConnectorError
from dagster_airbyte_proto.launchers.docker import images
from dagster_airbyte_proto.launchers.docker.daemon import error_from_message, open_daemon
from dagster_airbyte_proto.launchers.docker.launcher import Confinement, DockerLauncher
from dagster_airbyte_proto.protocols.conversation import Invocation

_IMAGE = {"Id": "sha256:0123", "RepoDigests": [], "Config": {"Entrypoint": ["/run"]}}


class _DiesDuringPulls(BaseHTTPRequestHandler):
    """Has no image, and ends in the middle of a pull."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path.endswith("/version"):
            self._answer(200, {"ApiVersion": "1.44"})
        else:
            self._answer(404, {"message": "No such image: acme/source:1"})

    def do_POST(self) -> None:
        self._begin_pull()
        self.close_connection = True

    def _begin_pull(self) -> None:
        message = json.dumps({"status": "Downloading", "id": "layer"}).encode() + b"\r\n"
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(message), message))

    def _answer(self, status: int, value: Any) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

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
        yield DockerLauncher(images.Image("acme/source:1"), Confinement(network="none"))
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


def test_an_image_that_was_pruned_since_is_pulled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a `docker system prune --all` each night: between two containers of a run nothing uses the image."""

    class Prunes(_DiesDuringPulls):
        has_image = True

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path.endswith("/images/acme/source:1/json") and self.has_image:
                self._answer(200, _IMAGE)
            elif path.endswith(("/volumes", "/containers/json", "/info")):
                empty: dict[str, Any] = {"volumes": {"Volumes": []}, "json": [], "info": {"NCPU": 2}}
                self._answer(200, empty[path.rpartition("/")[2]])
            else:
                super().do_GET()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if "/images/create?" in self.path:
                type(self).has_image = True
                self._begin_pull()
                self.wfile.write(b"0\r\n\r\n")
            elif self.has_image:
                self._answer(500, {"message": "the image is there"})  # No more is to be seen here.
            else:
                self._answer(404, {"message": "No such image: acme/source:1"})

        def do_DELETE(self) -> None:
            self._answer(404, {"message": "No such container"})

    with _served(Prunes, monkeypatch) as launcher:
        launcher.identity()
        Prunes.has_image = False
        with pytest.raises(ConnectorError, match="the image is there"):
            launcher.launch(Invocation(("spec",)), environment={})


@pytest.mark.parametrize(
    ("network", "retryable"), [("airbyte-proto-0123456789ab", True), ("0f" * 32, True), ("no-such", False)]
)
def test_a_network_of_ours_that_was_pruned_is_made_again_by_a_retry(network: str, retryable: bool) -> None:
    error = error_from_message("starting the connector", "acme/source:1", f"network {network} not found")
    assert error.retryable is retryable


@pytest.mark.parametrize(("place", "retryable"), [("tcp://127.0.0.1:9", True), ("unix:///no/such.sock", False)])
def test_one_that_refuses_connections_may_take_them_later(
    place: str, retryable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that restarts, or that is started beside us."""
    for name in ("DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_HOST", place)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    with pytest.raises(ConfigError, match="connecting to Docker") as caught:
        open_daemon()
    assert caught.value.retryable is retryable
