"""A token service before moto's, with the rule of AWS that moto leaves out: a session may do what its policy says, and
no more. So a catalog's own session policies are put to the test, and its credentials end when the test says.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4
from xml.sax.saxutils import escape

from botocore.exceptions import BotoCoreError

from tests.support.object_stores.s3 import ObjectStore

_TRUST = '{"Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": "*"}}]}'
_POLICY = "session"
_SHORTEST_SESSION_SECONDS = 900
_ANSWER = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{token}</SessionToken>
<Expiration>{expiration}</Expiration></Credentials><AssumedRoleUser><AssumedRoleId>A:table</AssumedRoleId>
<Arn>arn:aws:sts::123456789012:assumed-role/r/table</Arn></AssumedRoleUser></AssumeRoleResult>
<ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></AssumeRoleResponse>"""


class TokenService:
    """What the service has given so far. The life of what it gives may be changed while it runs."""

    def __init__(self, store: ObjectStore) -> None:
        self.uri, self.seconds = "", 3600.0
        self.policies: list[dict[str, Any]] = []
        self.secrets: set[str] = set()
        self._iam, self._sts, self._lock = store.client("iam"), store.client("sts"), threading.Lock()

    def assume_role(self, policy: dict[str, Any]) -> str:
        """Returns the answer to a request for a session with this policy."""
        role, seconds = f"r{uuid4().hex}", self.seconds
        # moto denies whatever has a condition: the prefix of a listing is not checked.
        statements = [{key: value for key, value in each.items() if key != "Condition"} for each in policy["Statement"]]
        arn = self._iam.create_role(RoleName=role, AssumeRolePolicyDocument=_TRUST)["Role"]["Arn"]
        document = json.dumps({**policy, "Statement": statements})
        self._iam.put_role_policy(RoleName=role, PolicyName=_POLICY, PolicyDocument=document)
        session = {"RoleArn": arn, "RoleSessionName": "table", "DurationSeconds": _SHORTEST_SESSION_SECONDS}
        given = self._sts.assume_role(**session)["Credentials"]
        timer = threading.Timer(seconds, self._expire, [role])
        timer.daemon = True
        timer.start()
        with self._lock:
            self.policies.append(policy)
            self.secrets |= {given["SecretAccessKey"], given["SessionToken"]}
        return _ANSWER.format(
            key=given["AccessKeyId"],
            secret=escape(given["SecretAccessKey"]),
            token=escape(given["SessionToken"]),
            expiration=datetime.fromtimestamp(time.time() + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        )

    def _expire(self, role: str) -> None:
        with suppress(BotoCoreError):  # The store may be gone by now.
            self._iam.delete_role_policy(RoleName=role, PolicyName=_POLICY)


@contextmanager
def running_token_service(store: ObjectStore) -> Iterator[TokenService]:
    tokens = TokenService(store)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Does nothing: a test that fails says what is wrong."""

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            answer = tokens.assume_role(json.loads(form["Policy"][0])).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/xml")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        tokens.uri = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield tokens
        finally:
            server.shutdown()
