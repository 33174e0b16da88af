"""Serves the kept values of one asset to one connector over HTTP, for as long as its process runs.

- It listens where only that connector's machine or network is, and takes calls that have the secret of this run: as a
  bearer token, or in the path for clients that send none. The secret dies with the server.
- A browser that was led here is refused: its `Host` is another name, or it names an `Origin`.
- What one connector can make it do is bounded: bytes of a call, calls a second, connections, seconds of a silent one.
"""

import hmac
import json
import re
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from dagster_airbyte_proto.errors import ProtoError, StateConflict
from dagster_airbyte_proto.launchers.process import HostPlace
from dagster_airbyte_proto.protocols.syncmaven.state_calls import BadCall, CallAnswer, Values, answer
from dagster_airbyte_proto.sync.state_server.pending_values import LimitExceeded

_PIECE = 64 * 1024
_DISCARDED_BYTES = 16 << 20
_MAX_CHUNKS, _MAX_TRAILERS = 10_000, 64
_CHUNK_HEAD_BYTES = 1024
_CHUNK_LENGTH = re.compile(rb"[0-9A-Fa-f]{1,8}(?=[;\s])")


class ServerLimits(NamedTuple):
    """The limits of what one connector may ask for."""

    call_bytes: int = (1 << 20) + _PIECE
    calls_per_second: int = 5000
    connections: int = 64
    silent_seconds: float = 60.0


_LIMITS = ServerLimits()


class _Allowance:
    """Counts calls: so many a second, and as many at once after a pause."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._left, self._at = float(per_second), time.monotonic()
        self._lock = threading.Lock()

    def take(self) -> bool:
        with self._lock:
            now = time.monotonic()
            self._left = min(self._per_second, self._left + (now - self._at) * self._per_second)
            self._at = now
            if self._left < 1:
                return False
            self._left -= 1
            return True


class StateServer:
    """A server for one process of a connector. `check` raises ProtoError once the run is over.

    `variables` are the environment of the connector: where the server is, that no proxy leads there, and the secret.
    """

    def __init__(
        self,
        values: Values,
        place: HostPlace,
        *,
        is_as_specified: bool,
        check: Callable[[], None],
        limits: ServerLimits = _LIMITS,
    ) -> None:
        self.secret = secrets.token_urlsafe(24)
        self._http = _HttpServer((place.address, 0), limits)
        self._http.answer = lambda method, body: answer(method, body, values, is_as_specified=is_as_specified)
        self._http.check, self._http.secret = check, self.secret
        port = self._http.server_address[1]
        self._http.names = frozenset(f"{name}:{port}" for name in (place.name, place.address, "localhost"))
        self._name = place.name
        self._url = f"http://{place.name}:{port}/{self.secret}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    @property
    def variables(self) -> Mapping[str, str]:
        secret = self.secret
        return {"RPC_URL": self._url, "RPC_SECRET": secret, "RPC_TOKEN": secret, "NO_PROXY": self._name}

    def close(self) -> None:
        """Ends the server and its connections. Safe to call twice."""
        self._http.shutdown()
        self._http.server_close()
        self._http.close_connections()
        self._thread.join()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    answer: Callable[[str, bytes], CallAnswer]
    check: Callable[[], None]
    secret: str
    names: frozenset[str]

    def __init__(self, address: tuple[str, int], limits: ServerLimits) -> None:
        self.limits = limits
        self.allowance = _Allowance(limits.calls_per_second)
        self._open: set[Any] = set()
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # Not HTTPServer's, which looks up our name in DNS.
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            is_one_too_many = len(self._open) >= self.limits.connections
            if not is_one_too_many:
                self._open.add(request)
        if is_one_too_many:
            request.settimeout(1.0)
            try:
                request.sendall(b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            finally:
                super().shutdown_request(request)
            return
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        with self._lock:
            still_open = list(self._open)
        for request in still_open:
            try:
                request.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is the connector's affair: its own log tells."""


class _Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _HttpServer

    def setup(self) -> None:
        self.request.settimeout(self.server.limits.silent_seconds)
        super().setup()

    def do_POST(self) -> None:
        try:
            method = self._method()
            body = self._body()
            found = self.server.answer(method, body)
            if found.content_type == "application/json" and not method.endswith("list"):
                self._send(200, b"".join(found.pieces))
            else:
                self._stream(found)
        except (_Refused, BadCall) as refused:
            self._refuse(refused.status, str(refused))
        except LimitExceeded as refused:
            self._refuse(413, str(refused))
        except StateConflict:
            self._refuse(401, "this run is over: another has taken its place")
        except ProtoError as error:
            self._refuse(503, error.found)

    def _method(self) -> str:
        """Returns the method of a call that may be made. Raises _Refused."""
        headers, server = self.headers, self.server
        if "Origin" in headers or headers.get("Host", "") not in server.names:
            raise _Refused(403, "only the connector of this run is served here")
        first, _, rest = self.path.lstrip("/").partition("/")
        bearer = headers.get("Authorization")
        in_path = _same(first, server.secret)
        is_known = in_path if bearer is None else _same(bearer, f"Bearer {server.secret}")
        if not is_known:
            raise _Refused(401, "the secret of this run is missing or wrong")
        server.check()
        if not server.allowance.take():
            raise _Refused(429, f"more than {server.limits.calls_per_second:,} calls a second")
        return rest if in_path else self.path.lstrip("/")

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").strip().lower() == "chunked":
            return self._body_in_chunks()
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit():
            raise _Refused(411, "a call needs a Content-Length")
        if int(length) > self.server.limits.call_bytes:
            self._discard(int(length))
            raise self._too_large()
        return self.rfile.read(int(length))

    def _body_in_chunks(self) -> bytes:
        """Reads a body whose length nobody says before: Node sends such where it is written piece by piece."""
        body, size = bytearray(), 0
        for _ in range(_MAX_CHUNKS):
            length = self._chunk_length()
            size += length
            if not length:
                self._pass_over_trailers()
                break
            if size <= self.server.limits.call_bytes:
                body += self.rfile.read(length)
            elif size <= _DISCARDED_BYTES:
                self._discard(length)
            else:
                raise self._too_large()
            self.rfile.readline(_CHUNK_HEAD_BYTES)
        else:
            raise _Refused(413, f"a call may have {_MAX_CHUNKS:,} chunks")
        if size > self.server.limits.call_bytes:
            raise self._too_large()
        return bytes(body)

    def _chunk_length(self) -> int:
        head = _CHUNK_LENGTH.match(self.rfile.readline(_CHUNK_HEAD_BYTES))
        if head is None:
            raise _Refused(400, "the body is cut off, or is not in chunks")
        return int(head[0], 16)

    def _pass_over_trailers(self) -> None:
        for _ in range(_MAX_TRAILERS):
            if not self.rfile.readline(_PIECE).strip():
                return

    def _too_large(self) -> _Refused:
        return _Refused(413, f"a call may have {self.server.limits.call_bytes:,} bytes")

    def _discard(self, length: int) -> None:
        """Reads a body that is somewhat too large: its client would see a broken connection, and not our answer."""
        while 0 < length <= _DISCARDED_BYTES and (piece := self.rfile.read(min(length, _PIECE))):
            length -= len(piece)

    def _send(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if status == 429:
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, found: CallAnswer) -> None:
        """Sends the pieces as they come, so that no list is ever in memory as a whole."""
        self.send_response(200)
        self.send_header("Content-Type", found.content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in _in_parts(found.pieces):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")

    def _refuse(self, status: int, text: str) -> None:
        self.close_connection = True  # Its body may not have been read.
        self._send(status, json.dumps({"error": text}).encode())

    def log_message(self, *_: Any) -> None:
        """Nothing: a call names keys, which may be personal data, and the secret."""


def _in_parts(pieces: Iterator[bytes]) -> Iterator[bytes]:
    part = bytearray()
    for piece in pieces:
        part += piece
        if len(part) >= _PIECE:
            yield bytes(part)
            part.clear()
    if part:
        yield bytes(part)


def _same(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())
