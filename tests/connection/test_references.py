"""References to the environment in a config: filled late, named when missing, never shown."""

from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.connection import (
    Connection,
)
from dagster_airbyte_proto.errors import ConfigError
from tests.connection.test_connection import CONNECTOR, LOCAL, read


def connection(config: dict[str, Any]) -> Connection:
    return Connection.model_validate({"name": "shop", "connector": CONNECTOR, "config": config})


def test_the_environment_fills_strings_wherever_they_stand() -> None:
    shop = connection({"a": {"b": ["${env:USER}:${env:WORD}", 1, None]}, "url": "x/${env:USER}", "${env:KEY}": True})
    filled = shop.filled_config({"USER": "ann", "WORD": "${env:USER}", "EMPTY": ""})
    assert filled.config == {"a": {"b": ["ann:${env:USER}", 1, None]}, "url": "x/ann", "${env:KEY}": True}
    assert filled.secrets == {"ann", "${env:USER}"}
    assert shop.config is not None
    assert shop.config["url"] == "x/${env:USER}"


def test_an_escaped_reference_stays_as_words_and_an_empty_variable_is_no_secret() -> None:
    filled = connection({"a": "$${env:HOME} ${env:EMPTY}"}).filled_config({"HOME": "/h", "EMPTY": ""})
    assert filled.config == {"a": "${env:HOME} "}
    assert filled.secrets == frozenset()


def test_every_variable_that_is_not_set_is_named_with_its_place() -> None:
    shop = connection({"a": {"b": ["x", "${env:ONE}"]}, "c": "${env:TWO} ${env:", "d": "${env:A B}", "e": "${env:OK}"})
    with pytest.raises(ConfigError) as error:
        shop.filled_config({"OK": "hunter2"})
    assert (
        str(error.value)
        == """connection shop: 4 faults
  config.a.b[1]: the environment variable ONE is not set
  config.c: the environment variable TWO is not set
  config.c: a "${env:" lacks its "}"
  config.d: "${env:…}" must hold the name of an environment variable"""
    )


def test_a_variable_that_is_not_set_is_reported_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        read(tmp_path, LOCAL + 'config: {password: "${env:WORD}"}').filled_config({})
    assert error.value.doing == f"connection file {tmp_path / 'shop.yaml'}"
    assert error.value.found == "config.password: the environment variable WORD is not set"


def test_a_config_file_is_filled_and_refused_by_its_own_name(tmp_path: Path) -> None:
    shop = read(tmp_path, LOCAL + "config_file: secret.yaml")
    with pytest.raises(ConfigError, match="there is no such file"):
        shop.filled_config({})
    (tmp_path / "secret.yaml").write_text("password: ${env:WORD}")
    assert shop.filled_config({"WORD": "a1"}).config == {"password": "a1"}
    with pytest.raises(ConfigError) as error:
        shop.filled_config({})
    assert str(error.value) == (
        f"config file {tmp_path / 'secret.yaml'}: password: the environment variable WORD is not set"
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": 1, "a": 2}', "a: is given twice"),
        ('{"a": NaN}', "NaN is not a number in JSON"),
        ('{"a": }', "line 1: is not JSON: Expecting value (column 7)"),
        ("[" * 100_000, "is nested too deeply"),
        ("[]", "must be a mapping of keys to values; found a list"),
    ],
)
def test_a_bad_json_config_file_is_refused(tmp_path: Path, text: str, found: str) -> None:
    shop = read(tmp_path, LOCAL + "config_file: c.json")
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(ConfigError) as error:
        shop.written_config()
    assert error.value.found == found


def test_the_digest_depends_on_the_config_and_not_on_the_order_of_its_keys() -> None:
    one, two, three = ({"a": 1, "b": "x"}, {"b": "x", "a": 1}, {"a": 1, "b": "y"})
    digests = [connection(config).filled_config({}).digest for config in (one, two, three)]
    assert digests[0] == digests[1] != digests[2]
