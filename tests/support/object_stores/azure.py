"""Azure Blob Storage for tests: Azurite, in memory. It checks keys and tokens."""

import base64
import hashlib
import hmac
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from dagster_airbyte_proto.loads.storage import Storage
from tests.support.needs import require_npm
from tests.support.network.ports import free_port

_PACKAGE = "azurite@3.35.0"
_INSTALL_SECONDS = 900
_STARTS_WITHIN_SECONDS = 60
_ACCOUNT = "devstoreaccount1"
_HOST = f"{_ACCOUNT}.dfs.core.windows.net"
_CONTAINER = "lake"
# Of the account that every Azurite has, as its documentation says.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class AzureStore(NamedTuple):
    """A running store with one container."""

    endpoint: str

    @property
    def location(self) -> str:
        return f"abfss://{_CONTAINER}@{_HOST}"

    @property
    def address(self) -> dict[str, str]:
        return {f"adls.connection-string.{_HOST}": self.endpoint}

    @property
    def settings(self) -> dict[str, str]:
        """The properties of an Iceberg catalog."""
        names = "adls.auth.shared-key.account.name", "adls.auth.shared-key.account.key"
        return {**self.address, **dict(zip(names, (_ACCOUNT, _KEY), strict=True))}

    @property
    def hadoop_settings(self) -> dict[str, str]:
        """The same as Hadoop has them."""
        return {**self.address, f"fs.azure.account.key.{_HOST}": _KEY}

    def vended(self, life: timedelta, permissions: str = "rwdlac") -> dict[str, str]:
        """Credentials for a limited time, as a catalog vends them."""
        expires_at = datetime.now(UTC) + life
        return {
            f"adls.sas-token.{_HOST}": _signed(expires_at, permissions),
            f"adls.sas-token-expires-at-ms.{_HOST}": str(int(expires_at.timestamp() * 1000)),
        }


def _signed(expires_at: datetime, permissions: str) -> str:
    """A token for the account, as Azure's documentation says how it is signed."""
    fields = {
        "sp": permissions,
        "ss": "b",
        "srt": "sco",
        "st": "",
        "se": f"{expires_at:%Y-%m-%dT%H:%M:%SZ}",
        "sip": "",
        "spr": "https,http",
        "sv": "2020-10-02",
    }
    text = "".join(f"{line}\n" for line in (_ACCOUNT, *fields.values()))
    digest = hmac.new(base64.b64decode(_KEY), text.encode(), hashlib.sha256).digest()
    given = {name: value for name, value in fields.items() if value}
    return urlencode({**given, "sig": base64.b64encode(digest).decode()})


@contextmanager
def running_azure_store(cache: Path) -> Iterator[AzureStore]:
    """Starts a store, which is installed once, into a folder that stays. Skips the test where there is no npm."""
    require_npm()
    program = cache / "node_modules" / ".bin" / "azurite-blob"
    if not program.exists():
        install = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--prefix", str(cache), _PACKAGE]
        subprocess.run(install, check=True, capture_output=True, timeout=_INSTALL_SECONDS)
    port = free_port()
    where = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    # It may be older than the clients.
    words = [str(program), *where, "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    with subprocess.Popen(words, cwd=cache, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            store = AzureStore(f"http://127.0.0.1:{port}/{_ACCOUNT}")
            _make_container(store, server, port)
            yield store
        finally:
            server.kill()


def _make_container(store: AzureStore, server: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            break
        except OSError:
            assert server.poll() is None and time.monotonic() < deadline, "Azurite did not start"
            time.sleep(0.05)
    filesystem, _ = Storage(store.settings).at(store.location)
    filesystem.create_dir(_CONTAINER)
