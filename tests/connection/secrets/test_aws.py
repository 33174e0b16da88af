"""`${aws-sm:…}` against moto's Secrets Manager."""

from collections.abc import Iterator

import boto3
import pytest
from moto import mock_aws

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError, SecretStoreError
from tests.connection.test_connection import CONNECTOR


@pytest.fixture(autouse=True)
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {"ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x", "DEFAULT_REGION": "eu-west-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with mock_aws():
        client = boto3.client("secretsmanager")
        client.create_secret(Name="shop/login", SecretString='{"user": "ann", "password": "hunter2", "port": 5432}')
        client.create_secret(Name="shop/token", SecretString="t0ken#1")
        client.create_secret(Name="shop/binary", SecretBinary=b"\x00")
        yield


def connection(text: str) -> Connection:
    return Connection.model_validate({"name": "shop", "connector": CONNECTOR, "config": {"a": text}})


def test_a_key_of_a_secret_and_a_whole_secret_are_filled_in() -> None:
    filled = connection("${aws-sm:shop/login#user}:${aws-sm:shop/login#password}@${aws-sm:shop/token}").filled_config(
        {}
    )
    assert filled.config == {"a": "ann:hunter2@t0ken#1"}
    assert filled.secrets == {"ann", "hunter2", "t0ken#1"}
    assert connection("${aws-sm:shop/login#port}").filled_config({}).config == {"a": "5432"}


def test_an_arn_names_its_region(monkeypatch: pytest.MonkeyPatch) -> None:
    arn = boto3.client("secretsmanager").describe_secret(SecretId="shop/token")["ARN"]
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert connection(f"${{aws-sm:{arn}}}").filled_config({}).config == {"a": "t0ken#1"}


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("shop/login#pin", "the secret shop/login has no key pin; it has: password, port, user"),
        ("shop/token#x", "the secret shop/token is no JSON object, so it has no key x"),
        ("shop/binary", "the secret shop/binary is binary; only text can be filled in"),
        ("#x", '"${aws-sm:…}" must hold a name: "${aws-sm:shop/login#password}"'),
    ],
)
def test_a_secret_that_does_not_fit_is_named_without_its_value(reference: str, found: str) -> None:
    with pytest.raises(ConfigError) as error:
        connection(f"${{aws-sm:{reference}}}").filled_config({})
    # moto has no secret of the name "shop/token#x": the last "#" begins a key.
    assert error.value.found == f"config.a: {found}"


def test_a_secret_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="AWS Secrets Manager refuses shop/none: ResourceNotFoundException"):
        connection("${aws-sm:shop/none}").filled_config({})


def test_a_profile_that_is_not_there_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    with pytest.raises(ConfigError, match="no login to AWS: The config profile \\(nobody\\) could not be found"):
        connection("${aws-sm:shop/token}").filled_config({})


def test_no_answer_is_an_error_that_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(SecretStoreError, match="reading shop/none of AWS Secrets Manager") as error:
        connection("${aws-sm:shop/none}").filled_config({})
    assert error.value.retryable
