"""A low-code manifest of ours and the web API that it reads: pages, a rate limit, tokens that are good for one use."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

PAGE = 2
SECRET = "client-secret-of-the-api"
FIRST_REFRESH_TOKEN = "refresh-token-0"

MANIFEST = """\
version: 6.0.0
type: DeclarativeSource
check: {type: CheckStream, stream_names: [cities]}
definitions:
  requester:
    type: HttpRequester
    url_base: "{{ config['url'] }}"
    http_method: GET
    authenticator:
      type: OAuthAuthenticator
      token_refresh_endpoint: "{{ config['url'] }}/token"
      client_id: "{{ config['client_id'] }}"
      client_secret: "{{ config['client_secret'] }}"
      refresh_token: "{{ config['credentials']['refresh_token'] }}"
      refresh_token_updater:
        access_token_config_path: [credentials, access_token]
        refresh_token_config_path: [credentials, refresh_token]
        token_expiry_date_config_path: [credentials, token_expiry_date]
    error_handler:
      type: DefaultErrorHandler
      backoff_strategies:
        - {type: WaitTimeFromHeader, header: Retry-After}
  paginator:
    type: DefaultPaginator
    page_token_option: {type: RequestOption, inject_into: request_parameter, field_name: page}
    pagination_strategy:
      type: CursorPagination
      cursor_value: "{{ response['next'] }}"
      stop_condition: "{{ not response['next'] }}"
  reading: &reading
    type: SimpleRetriever
    paginator: {$ref: "#/definitions/paginator"}
    record_selector: {type: RecordSelector, extractor: {type: DpathExtractor, field_path: [rows]}}
streams:
  - type: DeclarativeStream
    name: users
    primary_key: [id]
    incremental_sync:
      type: DatetimeBasedCursor
      cursor_field: changed_on
      datetime_format: "%Y-%m-%d"
      cursor_datetime_formats: ["%Y-%m-%d"]
      start_datetime: {type: MinMaxDatetime, datetime: "2026-01-01", datetime_format: "%Y-%m-%d"}
      start_time_option: {type: RequestOption, inject_into: request_parameter, field_name: since}
    retriever:
      <<: *reading
      requester: {$ref: "#/definitions/requester", path: /users}
    schema_loader:
      type: InlineSchemaLoader
      schema:
        type: object
        properties:
          id: {type: integer}
          class_name: {type: string}
          changed_on: {type: string, format: date}
  - type: DeclarativeStream
    name: cities
    retriever:
      <<: *reading
      requester: {$ref: "#/definitions/requester", path: /cities}
    schema_loader:
      type: InlineSchemaLoader
      schema: {type: object, properties: {name: {type: string}}}
spec:
  type: Spec
  documentation_url: https://example.com/docs
  connection_specification:
    type: object
    additionalProperties: false
    required: [url, client_id, client_secret, credentials]
    properties:
      url: {type: string, title: Where the API is}
      client_id: {type: string}
      client_secret: {type: string, airbyte_secret: true}
      credentials:
        type: object
        properties:
          access_token: {type: string, airbyte_secret: true}
          refresh_token: {type: string, airbyte_secret: true}
          token_expiry_date: {type: string}
"""


class Api:
    """The server's data and the requests that it got. It answers `busy` requests of `/users` with "in a second"."""

    def __init__(self) -> None:
        self.url = ""
        self.rows: dict[str, list[dict[str, Any]]] = {"/users": [], "/cities": []}
        self.busy = 0
        self.asked: list[tuple[str, dict[str, str], int]] = []
        self.refresh_token = FIRST_REFRESH_TOKEN
        self.access_token = "access-token-0"
        self._lock = threading.Lock()

    @property
    def config(self) -> dict[str, Any]:
        """The config as its user wrote it: with an access token that has expired, and a refresh token for one use."""
        credentials = {
            "access_token": "expired-long-ago",
            "refresh_token": FIRST_REFRESH_TOKEN,
            "token_expiry_date": "2026-01-01T00:00:00Z",
        }
        return {"url": self.url, "client_id": "us", "client_secret": SECRET, "credentials": credentials}

    def statuses(self, path: str) -> list[int]:
        return [status for asked, _, status in self.asked if asked == path]

    def answer(self, path: str, told: dict[str, str], authorization: str) -> tuple[int, Any]:
        with self._lock:
            status, body = self._token(told) if path == "/token" else self._page(path, told, authorization)
            self.asked.append((path, told, status))
        return status, body

    def _token(self, told: dict[str, str]) -> tuple[int, Any]:
        if (told.get("refresh_token"), told.get("client_secret")) != (self.refresh_token, SECRET):
            return 400, {"error": "invalid_grant"}
        number = int(self.refresh_token.rpartition("-")[2]) + 1
        self.refresh_token, self.access_token = f"refresh-token-{number}", f"access-token-{number}"
        return 200, {
            "access_token": self.access_token,
            "refresh_token": self.refresh_token,
            "expires_in": 3600,
        }

    def _page(self, path: str, told: dict[str, str], authorization: str) -> tuple[int, Any]:
        if authorization != f"Bearer {self.access_token}":
            return 401, {}
        if path == "/users" and self.busy:
            self.busy -= 1
            return 429, {}
        first = int(told.get("page", "0"))
        since = told.get("since", "")
        rows = [row for row in self.rows[path] if row.get("changed_on", since) >= since]
        more = first + PAGE < len(rows)
        return 200, {"rows": rows[first : first + PAGE], "next": str(first + PAGE) if more else None}


class _Handler(BaseHTTPRequestHandler):
    api: Api

    def do_GET(self) -> None:
        self._reply("")

    def do_POST(self) -> None:
        self._reply(self.rfile.read(int(self.headers["Content-Length"])).decode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the class that calls it
        pass

    def _reply(self, body: str) -> None:
        url = urlsplit(self.path)
        told = {name: values[-1] for name, values in parse_qs(f"{url.query}&{body}").items()}
        status, answer = self.api.answer(url.path, told, self.headers.get("Authorization", ""))
        content = json.dumps(answer).encode()
        self.send_response(status)
        if status == 429:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def running_api() -> Iterator[Api]:
    api = Api()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"api": api}))
    api.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
