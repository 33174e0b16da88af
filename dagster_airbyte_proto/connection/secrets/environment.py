"""`${env:NAME}`: environment variables of the process that runs the sync."""

import re

from dagster_airbyte_proto.connection.secrets.secret_source import SecretContext
from dagster_airbyte_proto.errors import ConfigError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class EnvironmentVariables:
    """Secrets from environment variables."""

    def __init__(self, context: SecretContext) -> None:
        self._environment = context.environment

    def secret(self, reference: str) -> str:
        if not _NAME.fullmatch(reference):
            raise ConfigError("", '"${env:…}" must hold the name of an environment variable')
        if reference not in self._environment:
            raise ConfigError("", f"the environment variable {reference} is not set")
        return self._environment[reference]
