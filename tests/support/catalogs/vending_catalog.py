"""A REST catalog as companies have them: a server that stands before another catalog, demands bearer tokens of its own
token service, and vends credentials of the store's STS with every table.

The credentials belong to a role that may use the folder of one table, in moto's IAM. When their life is over the role
loses that right, so the store itself refuses them.
"""

import base64
import http.client
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from botocore.exceptions import BotoCoreError

from tests.support.catalogs import rest_catalog
from tests.support.object_stores.s3 import ObjectStore

CLIENT, SECRET, SCOPE = "tester", "hunter2hunter2", "lake:all"
_FILE_IO = "org.apache.iceberg.aws.s3.S3FileIO"
_TABLES = re.compile(r"/v1/namespaces/[^/]+/tables(/[^/]+)?")
_TRUST = '{"Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": "*"}}]}'
_POLICY = "the table"
_SHORTEST_SESSION_SECONDS = 900
_PATIENCE_SECONDS = 60
_HOP_BY_HOP = {"host", "authorization", "accept-encoding", "connection", "content-length", "transfer-encoding"}


class TableKeys:
    """Gives credentials for single folders of the store."""

    def __init__(self, store: ObjectStore) -> None:
        self._iam, self._sts = store.client("iam"), store.client("sts")
        self._roles: dict[str, str] = {}

    def new(self, location: str, seconds: float) -> dict[str, str]:
        """Returns credentials for a folder, as properties of an Iceberg catalog, with their time of expiry.

        They end by `expire` alone.
        """
        bucket, _, folder = location.partition("://")[2].partition("/")
        role, anything = f"r{uuid4().hex}", {"Effect": "Allow", "Action": "s3:*"}
        resources = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/{folder}/*"]
        policy = {"Version": "2012-10-17", "Statement": [{**anything, "Resource": each} for each in resources]}
        arn = self._iam.create_role(RoleName=role, AssumeRolePolicyDocument=_TRUST)["Role"]["Arn"]
        self._iam.put_role_policy(RoleName=role, PolicyName=_POLICY, PolicyDocument=json.dumps(policy))
        session = {"RoleArn": arn, "RoleSessionName": "table", "DurationSeconds": _SHORTEST_SESSION_SECONDS}
        found = self._sts.assume_role(**session)["Credentials"]
        self._roles[found["AccessKeyId"]] = role
        return {
            "s3.access-key-id": found["AccessKeyId"],
            "s3.secret-access-key": found["SecretAccessKey"],
            "s3.session-token": found["SessionToken"],
            "s3.session-token-expires-at-ms": str(int((time.time() + seconds) * 1000)),
        }

    def expire(self, settings: Mapping[str, str]) -> None:
        """Ends the life of credentials."""
        role = self._roles[settings["s3.access-key-id"]]
        with suppress(BotoCoreError):  # The store may be gone by now.
            self._iam.delete_role_policy(RoleName=role, PolicyName=_POLICY)


class VendingCatalog:
    """What the server has given and refused so far. The lives may be changed while it runs."""

    def __init__(self, upstream: str, store: ObjectStore) -> None:
        self.upstream, self.store, self.uri = urlsplit(upstream), store, ""
        self.bucket = ""
        self.token_seconds, self.credential_seconds = 3600.0, 3600.0
        self.by_prefix = False
        self.refusal = "invalid_client"
        self.tokens: dict[str, float] = {}
        self.vended: list[dict[str, str]] = []
        self.refused = 0
        self._keys, self._lock = TableKeys(store), threading.Lock()

    @property
    def properties(self) -> dict[str, str]:
        """The properties of an Iceberg catalog, which has no credentials of the store."""
        ours = {key: value for key, value in self.store.settings.items() if "key" not in key}
        return {
            "type": "rest",
            "uri": self.uri,
            "io-impl": _FILE_IO,
            "credential": f"{CLIENT}:{SECRET}",
            "scope": SCOPE,
            "oauth2-server-uri": f"{self.uri}oauth/tokens",
            "rest.auth.type": "oauth2",
            "header.X-Iceberg-Access-Delegation": "vended-credentials",
            **ours,
        }

    @property
    def secrets(self) -> set[str]:
        vended = {value for each in self.vended for key, value in each.items() if "token-" not in key}
        return {SECRET, *self.tokens, *vended}

    def token(self, form: dict[str, list[str]], authorization: str) -> dict[str, Any] | None:
        """Returns a new token, if the request has the client's secret or a token that is still good."""
        kind, secret = form.get("grant_type", [""])[0], form.get("client_secret", [""])[0]
        if authorization.startswith("Basic "):
            secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")[2]
        if kind == "client_credentials":
            allowed = secret == SECRET and form.get("scope") == [SCOPE]
        else:
            allowed = secret == SECRET or self.is_good(form.get("subject_token", [""])[0])
        if not allowed:
            return None
        token, kind = uuid4().hex, "urn:ietf:params:oauth:token-type:access_token"
        with self._lock:
            self.tokens[token] = time.time() + self.token_seconds
        life = int(self.token_seconds)
        return {"access_token": token, "token_type": "bearer", "issued_token_type": kind, "expires_in": life}

    def is_good(self, token: str) -> bool:
        return self.tokens.get(token, 0.0) > time.time()

    def vend(self, location: str) -> dict[str, str]:
        """Returns the settings of new credentials for the folder of a table."""
        vended = self._keys.new(location, self.credential_seconds)
        timer = threading.Timer(self.credential_seconds, self._keys.expire, [vended])
        timer.daemon = True
        timer.start()
        with self._lock:
            self.vended.append(vended)
        return vended

    def with_credentials(self, answer: bytes) -> bytes:
        """Adds credentials to the server's answer to a request to load or create a table."""
        loaded = json.loads(answer)
        location = loaded["metadata"]["location"]
        if self.by_prefix:
            loaded["storage-credentials"] = [{"prefix": location, "config": self.vend(location)}]
        else:
            loaded["config"] = {**loaded.get("config", {}), **self.vend(location)}
        return json.dumps(loaded).encode()


@contextmanager
def running_vending_catalog(folder: Path, store: ObjectStore) -> Iterator[VendingCatalog]:
    """Starts Iceberg's own server, with its tables in a new bucket, and the vending one before it."""
    bucket = store.new_bucket()
    warehouse = f"s3://{bucket}/ware house"
    properties = {"io-impl": _FILE_IO, **store.settings}
    with rest_catalog.running_catalog(folder, warehouse, properties) as uri, vending_catalog(uri, store) as catalog:
        catalog.bucket = bucket
        yield catalog


@contextmanager
def vending_catalog(upstream: str, store: ObjectStore) -> Iterator[VendingCatalog]:
    """Starts the server before the catalog at `upstream`."""
    catalog = VendingCatalog(upstream, store)

    class Handler(_Handler):
        vending = catalog

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        catalog.uri = f"http://127.0.0.1:{server.server_port}/"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield catalog
        finally:
            server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    vending: VendingCatalog

    def log_message(self, *_: object) -> None:
        """Does nothing: a test that fails says what is wrong."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        authorization = self.headers.get("Authorization", "")
        if self.path == "/oauth/tokens":
            token = self.vending.token(parse_qs(body.decode()), authorization)
            refusal = {"error": self.vending.refusal, "error_description": "Unknown client"}
            self._send(200 if token else 401, json.dumps(token or refusal).encode())
        elif not self.vending.is_good(authorization.removeprefix("Bearer ")):
            self.vending.refused += 1
            error = {"message": "Not authorized", "type": "NotAuthorizedException", "code": 401}
            self._send(401, json.dumps({"error": error}).encode())
        else:
            self._forward(body)

    do_GET = do_POST = do_DELETE = do_HEAD = _answer

    def _forward(self, body: bytes) -> None:
        upstream = self.vending.upstream
        headers = {key: value for key, value in self.headers.items() if key.lower() not in _HOP_BY_HOP}
        connection = http.client.HTTPConnection(upstream.hostname or "", upstream.port, timeout=_PATIENCE_SECONDS)
        connection.request(self.command, self.path, body or None, headers)
        answer = connection.getresponse()
        content, etag = answer.read(), answer.getheader("ETag")
        connection.close()
        table = _TABLES.fullmatch(urlsplit(self.path).path)
        loads = table and (self.command, table[1] is None) in (("GET", False), ("POST", True))
        if answer.status == 200 and loads and self.headers.get("X-Iceberg-Access-Delegation") == "vended-credentials":
            content = self.vending.with_credentials(content)
        self._send(answer.status, content, etag)

    def _send(self, status: int, content: bytes, etag: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if etag:
            self.send_header("ETag", etag)
        self.end_headers()
        if self.command != "HEAD" and status != 304:
            self.wfile.write(content)
