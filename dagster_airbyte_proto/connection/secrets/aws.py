"""`${aws-sm:name#key}`: secrets of AWS Secrets Manager, by boto3 (the extra `aws`).

The name is the secret's name or ARN. Without a key the value is the whole secret; a key is one of a secret that is a
JSON object, as the console makes them. Login and region come from where boto3 finds them; an ARN has its region.
"""

import json
from collections.abc import Mapping
from typing import Any

import boto3
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConfigNotFound,
    ConfigParseError,
    InvalidRegionError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)

from dagster_airbyte_proto.connection.secrets.secret_source import SecretContext, whole_and_key
from dagster_airbyte_proto.errors import ConfigError, SecretStoreError

# These come from AWS, and a later try may succeed. Every other answer is a refusal.
_WRONG_LOGIN = (
    ConfigNotFound,
    ConfigParseError,
    InvalidRegionError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)
"""Faults of the login or the region, which a later try has too."""
_PASSING = {"InternalServiceError", "InternalFailure", "ServiceUnavailable", "ThrottlingException", "RequestTimeout"}


class AwsSecretsManager:
    """Secrets from AWS Secrets Manager. Each is read once for each filling of a config."""

    def __init__(self, context: SecretContext) -> None:  # noqa: ARG002 - boto3 reads the environment itself
        self._texts: dict[str, str] = {}

    def secret(self, reference: str) -> str:
        name, key = whole_and_key(reference)
        if not name or key == "":
            raise ConfigError("", '"${aws-sm:…}" must hold a name: "${aws-sm:shop/login#password}"')
        if name not in self._texts:
            self._texts[name] = _read(name)
        return self._texts[name] if key is None else _value(name, key, self._texts[name])


def _read(name: str) -> str:
    doing = f"reading {name} of AWS Secrets Manager"
    region = name.split(":")[3] if name.startswith("arn:") and name.count(":") > 3 else None
    try:
        answer: Mapping[str, Any] = boto3.client("secretsmanager", region_name=region).get_secret_value(SecretId=name)
    except _WRONG_LOGIN as error:
        raise ConfigError("", f"no login to AWS: {error}") from None
    except ParamValidationError:
        raise ConfigError("", f"{name} is no name of a secret in AWS Secrets Manager") from None
    except ClientError as error:
        code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
        if code in _PASSING:
            raise SecretStoreError(doing, f"{code}: {message}") from None
        raise ConfigError("", f"AWS Secrets Manager refuses {name}: {code}: {message}") from None
    except BotoCoreError as error:
        raise SecretStoreError(doing, str(error)) from None
    if "SecretString" not in answer:
        raise ConfigError("", f"the secret {name} is binary; only text can be filled in")
    return str(answer["SecretString"])


def _value(name: str, key: str, text: str) -> str:
    try:
        fields = json.loads(text)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise ConfigError("", f"the secret {name} is no JSON object, so it has no key {key}")
    if key not in fields:
        raise ConfigError("", f"the secret {name} has no key {key}; it has: {', '.join(sorted(fields))}")
    value = fields[key]
    return value if isinstance(value, str) else json.dumps(value)
