"""A daemon that fails in odd moments, as its HTTP interface shows it."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.launchers.docker.images import Image
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


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _DiesDuringPulls) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        for name in ("DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.server_port}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.setenv(name, "127.0.0.1")
        yield
        server.shutdown()


@pytest.mark.usefixtures("daemon")
def test_one_that_goes_away_during_a_pull_may_come_back() -> None:
    with pytest.raises(ConnectorError, match="Docker's daemon went away in the middle of its answer") as caught:
        DockerLauncher(Image("acme/source:1")).identity()
    assert caught.value.retryable
