"""`${vault:path#key}`: secrets of HashiCorp Vault and OpenBao, by hvac (the extra `vault`).

1. The path is that of Vault's API: `secret/data/shop` in a KV engine of version 2, `kv/shop` in one of version 1,
   `database/creds/reader` of an engine that makes credentials.
2. A path is read once for each filling of a config. A dynamic engine gives a new login with each read, so `#username`
   and `#password` must come from the same one.
3. The address, the certificates and the token come from the variables that the `vault` command reads. Without a token
   we log in by AppRole (VAULT_ROLE_ID, VAULT_SECRET_ID) or by the Kubernetes service account (VAULT_K8S_ROLE).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hvac
import requests
from hvac.exceptions import Forbidden, InvalidRequest, Unauthorized, VaultError

from dagster_airbyte_proto.connection.secrets.secret_source import SecretContext, whole_and_key
from dagster_airbyte_proto.errors import ConfigError, SecretStoreError

_TIMEOUT_SECONDS = 20
_NO_ADDRESS = (
    requests.exceptions.InvalidSchema,
    requests.exceptions.InvalidURL,
    requests.exceptions.MissingSchema,
)
_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount/token"


class VaultSecrets:
    """Secrets from Vault."""

    def __init__(self, context: SecretContext) -> None:
        self._environment = context.environment
        self._client: Any = None
        self._answers: dict[str, Mapping[str, Any]] = {}

    def secret(self, reference: str) -> str:
        path, key = whole_and_key(reference)
        if not path or not key:
            raise ConfigError("", '"${vault:…}" must hold a path and a key: "${vault:secret/data/shop#password}"')
        path = path.strip("/")
        if path not in self._answers:
            self._answers[path] = self._read(path)
        fields = self._answers[path]
        if key not in fields:
            raise ConfigError("", f"Vault's {path} has no key {key}; it has: {', '.join(sorted(fields))}")
        value = fields[key]
        return value if isinstance(value, str) else json.dumps(value)

    def _read(self, path: str) -> Mapping[str, Any]:
        try:
            answer = self._logged_in().read(path)
        except (Forbidden, Unauthorized) as error:
            raise ConfigError("", f"Vault refuses to show {path}", remedy=_remedy(error)) from None
        except InvalidRequest as error:
            raise ConfigError("", f"Vault refuses the login or {path}: {_problem(error)}") from None
        except _NO_ADDRESS as error:
            raise ConfigError("", f"VAULT_ADDR is no address of Vault: {_problem(error)}") from None
        except (VaultError, requests.RequestException) as error:
            raise SecretStoreError(f"reading {path} of Vault at {self._address()}", _problem(error)) from None
        except OSError as error:  # A file of certificates, or the token of a pod.
            found = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            raise ConfigError("", f"cannot log in to Vault: {found}") from None
        # hvac's read returns None where Vault answers 404.
        if answer is None:
            hint = "A path of a KV engine of version 2 has data/ behind the engine: secret/data/shop."
            raise ConfigError("", f"Vault has nothing at {path}", remedy=hint)
        data = answer.get("data") if isinstance(answer, Mapping) else None
        if not isinstance(data, Mapping):
            raise ConfigError("", f"Vault's {path} is no secret with keys")
        return _fields(data)

    def _address(self) -> str:
        if address := self._environment.get("VAULT_ADDR"):
            return address
        raise ConfigError("", "the environment variable VAULT_ADDR is not set: the address of Vault")

    def _logged_in(self) -> Any:
        if self._client is None:
            self._client = self._new_client()
        return self._client

    def _new_client(self) -> Any:
        variables = self._environment
        # hvac itself takes the certificates from VAULT_CACERT and the like, and a token from VAULT_TOKEN or the file
        # that `vault login` writes.
        client = hvac.Client(
            url=self._address(),
            token=variables.get("VAULT_TOKEN"),
            namespace=variables.get("VAULT_NAMESPACE"),
            timeout=_TIMEOUT_SECONDS,
        )
        if role := variables.get("VAULT_ROLE_ID"):
            client.auth.approle.login(role, variables.get("VAULT_SECRET_ID"))
        elif role := variables.get("VAULT_K8S_ROLE"):
            client.auth.kubernetes.login(role, Path(_SERVICE_ACCOUNT).read_text())
        elif not client.token:
            raise ConfigError("", "no login to Vault: set VAULT_TOKEN, VAULT_ROLE_ID or VAULT_K8S_ROLE")
        return client


def _fields(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """A KV engine of version 2 puts the fields below `data`, beside `metadata`."""
    inner = data.get("data")
    return inner if data.keys() == {"data", "metadata"} and isinstance(inner, Mapping) else data


def _problem(error: Exception) -> str:
    return str(error).partition("\n")[0].partition(", on ")[0] or type(error).__name__


def _remedy(error: Exception) -> str:
    return f"{_problem(error)}. Does the policy of this token allow to read it?"
