"""Google Cloud Storage for tests: fake-gcs-server, in memory. It asks for no credentials."""

import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from tests.support.needs import lacks
from tests.support.network.ports import free_port

_PROGRAM = "fake-gcs-server"
_MODULE = f"github.com/fsouza/{_PROGRAM}@v1.56.1"
_BUILD_SECONDS = 900
_STARTS_WITHIN_SECONDS = 60


class GoogleStore(NamedTuple):
    """A running store with one bucket."""

    endpoint: str
    bucket: str

    @property
    def location(self) -> str:
        return f"gs://{self.bucket}"

    @property
    def settings(self) -> dict[str, str]:
        """The properties of an Iceberg catalog."""
        return {"gcs.service.host": self.endpoint, "gcs.no-auth": "true", "gcs.project-id": "tests"}


@contextmanager
def running_google_store(cache: Path) -> Iterator[GoogleStore]:
    """Starts a store, whose program is built once, into a folder that stays. Skips the test where there is no Go."""
    program = cache / _PROGRAM
    if not program.exists():
        if shutil.which("go") is None:
            lacks("go", "no Go, which builds a store like Google's (go.dev/dl)")
        environment = {**os.environ, "GOBIN": str(cache)}
        subprocess.run(["go", "install", _MODULE], env=environment, check=True, timeout=_BUILD_SECONDS)
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    words = [str(program), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    addresses = ["-public-host", f"127.0.0.1:{port}", "-external-url", endpoint]
    command = [*words, *addresses]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            yield GoogleStore(endpoint, _new_bucket(endpoint, server))
        finally:
            server.kill()


def _new_bucket(endpoint: str, server: "subprocess.Popen[bytes]") -> str:
    name, deadline = f"b{uuid4().hex}", time.monotonic() + _STARTS_WITHIN_SECONDS
    request = urllib.request.Request(
        f"{endpoint}/storage/v1/b?project=tests",
        json.dumps({"name": name}).encode(),
        {"Content-Type": "application/json"},
    )
    while True:
        try:
            with urllib.request.urlopen(request, timeout=_STARTS_WITHIN_SECONDS):
                return name
        except OSError:
            assert server.poll() is None and time.monotonic() < deadline, f"{_PROGRAM} did not start"
            time.sleep(0.05)
