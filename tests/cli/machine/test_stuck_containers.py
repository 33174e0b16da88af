"""`containers reap` where Docker's daemon, which is one of ours here, does not remove a container."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from dagster_airbyte_proto.launchers.docker.containers import docker_labels
from tests.cli.conftest import Place

_STUCK = {"Image": "source", "State": "dead", "Created": 1, "Labels": docker_labels({}), "Names": ["/ours"]}


class _Daemon(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.endswith("/version"):
            self._answer(200, {"Version": "20.10", "ApiVersion": "1.41"})
        elif path.endswith("/volumes"):
            self._answer(200, {"Volumes": []})
        else:
            self._answer(200, [_STUCK])

    def do_DELETE(self) -> None:
        self._answer(500, {"message": "device or resource busy"})

    def _answer(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Daemon) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.server_port}")
        yield
        server.shutdown()


@pytest.mark.usefixtures("stuck")
def test_a_container_that_is_still_there_is_no_success(place: Place) -> None:
    assert place.json("containers", "reap", "ours", code=1) == {"removed": [], "not_removed": ["ours"]}
    result = place.run("containers", "reap", "ours")
    assert result.code == 1
    assert "error: ours is still there" in result.out
