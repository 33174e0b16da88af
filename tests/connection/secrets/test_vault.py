"""`${vault:…}` against a small server that speaks Vault's HTTP API."""

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError, SecretStoreError
from tests.connection.test_connection import CONNECTOR

_TOKEN, _ROLE_TOKEN = "s.root", "s.role"


class FakeVault(ThreadingHTTPServer):
    """KV engines of both versions, an engine that makes logins, and the login by AppRole."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.reads: list[str] = []
        self.is_sealed = False

    @property
    def variables(self) -> dict[str, str]:
        return {"VAULT_ADDR": f"http://127.0.0.1:{self.server_port}", "VAULT_TOKEN": _TOKEN}

    def answer(self, path: str, token: str | None) -> tuple[int, Mapping[str, Any]]:
        self.reads.append(path)
        if self.is_sealed:
            return 503, {"errors": ["Vault is sealed"]}
        if token not in (_TOKEN, _ROLE_TOKEN) or path == "secret/data/other":
            return 403, {"errors": ["permission denied"]}
        data = {
            "secret/data/shop": {
                "data": {"user": "ann", "password": "hunter2", "port": 5432},
                "metadata": {"version": 3},
            },
            "kv/shop": {"password": "of version 1"},
            "kv/empty": None,
            "database/creds/reader": {"username": f"v-{len(self.reads)}", "password": f"p-{len(self.reads)}"},
        }
        return (200, {"data": data[path]}) if path in data else (404, {"errors": []})


class _Answers(BaseHTTPRequestHandler):
    server: FakeVault

    def do_GET(self) -> None:
        self._send(*self.server.answer(self.path.removeprefix("/v1/"), self.headers.get("X-Vault-Token")))

    def do_POST(self) -> None:
        login = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/auth/approle/login" and login == {"role_id": "role", "secret_id": "word"}:
            self._send(200, {"auth": {"client_token": _ROLE_TOKEN}})
        else:
            self._send(400, {"errors": ["invalid role or secret ID"]})

    def _send(self, status: int, answer: Mapping[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[FakeVault]:
    monkeypatch.setenv("HOME", str(tmp_path))  # hvac looks for the token of `vault login` there
    with FakeVault() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


def connection(text: str) -> Connection:
    return Connection.model_validate({"name": "shop", "connector": CONNECTOR, "config": {"a": text}})


def test_both_versions_of_kv_are_read_and_a_path_only_once(vault: FakeVault) -> None:
    text = "${vault:secret/data/shop#user}:${vault:secret/data/shop#password}:${vault:secret/data/shop#port}"
    filled = connection(text).filled_config(vault.variables)
    assert filled.config == {"a": "ann:hunter2:5432"}
    assert filled.secrets == {"ann", "hunter2", "5432"}
    assert vault.reads == ["secret/data/shop"]
    assert connection("${vault:kv/shop#password}").filled_config(vault.variables).config == {"a": "of version 1"}


def test_name_and_password_of_a_dynamic_login_belong_together(vault: FakeVault) -> None:
    text = "${vault:database/creds/reader#username} ${vault:database/creds/reader#password}"
    assert [connection(text).filled_config(vault.variables).config["a"] for _ in range(2)] == ["v-1 p-1", "v-2 p-2"]


def test_an_approle_logs_in(vault: FakeVault) -> None:
    role = {"VAULT_ADDR": vault.variables["VAULT_ADDR"], "VAULT_ROLE_ID": "role", "VAULT_SECRET_ID": "word"}
    assert connection("${vault:kv/shop#password}").filled_config(role).config == {"a": "of version 1"}
    with pytest.raises(ConfigError, match="Vault refuses the login or kv/shop: invalid role or secret ID"):
        connection("${vault:kv/shop#password}").filled_config({**role, "VAULT_SECRET_ID": "x"})


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("secret/data/shop#pin", "Vault's secret/data/shop has no key pin; it has: password, port, user"),
        ("secret/shop#x", "Vault has nothing at secret/shop. A path of a KV engine of version 2 has data/ behind"),
        ("secret/data/other#x", "Vault refuses to show secret/data/other. permission denied."),
        ("secret/data/shop", '"${vault:…}" must hold a path and a key'),
    ],
)
def test_what_is_not_there_is_named(vault: FakeVault, reference: str, found: str) -> None:
    with pytest.raises(ConfigError) as error:
        connection(f"${{vault:{reference}}}").filled_config(vault.variables)
    assert error.value.found.startswith(f"config.a: {found}")
    assert "hunter2" not in str(error.value)


def test_address_and_login_must_be_there(vault: FakeVault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VAULT_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="the environment variable VAULT_ADDR is not set"):
        connection("${vault:kv/shop#x}").filled_config({})
    with pytest.raises(ConfigError, match="no login to Vault"):
        connection("${vault:kv/shop#x}").filled_config({"VAULT_ADDR": vault.variables["VAULT_ADDR"]})


def test_a_login_that_is_not_there_is_the_users(vault: FakeVault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VAULT_TOKEN", raising=False)
    for variables, found in (
        ({"VAULT_K8S_ROLE": "sync"}, r"cannot log in to Vault: /var/run/secrets.*: No such file or directory"),
        ({"VAULT_TOKEN": _TOKEN, "VAULT_ADDR": "vault.internal"}, "VAULT_ADDR is no address of Vault"),
    ):
        with pytest.raises(ConfigError, match=found):
            connection("${vault:kv/shop#x}").filled_config({"VAULT_ADDR": vault.variables["VAULT_ADDR"], **variables})


def test_a_path_without_a_secret_is_named(vault: FakeVault) -> None:
    with pytest.raises(ConfigError, match="Vault's kv/empty is no secret with keys"):
        connection("${vault:kv/empty#x}").filled_config(vault.variables)


def test_a_sealed_vault_and_none_at_all_are_errors_that_may_pass(vault: FakeVault) -> None:
    vault.is_sealed = True
    for variables in (vault.variables, {**vault.variables, "VAULT_ADDR": "http://127.0.0.1:1"}):
        with pytest.raises(SecretStoreError, match="reading kv/shop of Vault") as error:
            connection("${vault:kv/shop#x}").filled_config(variables)
        assert error.value.retryable
