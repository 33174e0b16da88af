"""Schemes of secrets: by entry points, loaded when a run needs them, named when they are not there."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.connection.references import escaped
from dagster_airbyte_proto.errors import ConfigError
from tests.connection.test_connection import CONNECTOR, LOCAL, read


def connection(config: dict[str, Any]) -> Connection:
    return Connection.model_validate({"name": "shop", "connector": CONNECTOR, "config": config})


def test_an_unknown_scheme_is_an_error_that_names_those_that_are_known() -> None:
    with pytest.raises(ConfigError) as error:
        connection({"a": "${valt:x#y}"}).filled_config({})
    assert error.value.found == (
        'config.a: "${valt:…}" is no known kind of secret; did you mean "${vault:…}"? Known: env, file, aws-sm, vault. '
        'For the text itself write "$${valt:…}".'
    )


@pytest.mark.parametrize("text", ["${NAME:-x}", "${name:-x}", "${name:+x}", "${name}", "$name:x", "${ env:X }"])
def test_what_a_shell_means_is_no_reference(text: str) -> None:
    assert connection({"a": text}).filled_config({}).config == {"a": text}


@pytest.mark.parametrize("text", ["${env:A} ${file:b}", "$${vault:a#b}", "x${aws-sm:a}y", "$$$${env:A}"])
def test_escaped_text_is_filled_to_what_it_was(text: str) -> None:
    assert connection({"a": escaped(text)}).filled_config({}).config == {"a": text}


@pytest.mark.parametrize("scheme", ["env", "file", "vault", "aws-sm"])
def test_references_are_for_the_config_alone(tmp_path: Path, scheme: str) -> None:
    with pytest.raises(ConfigError, match=f'"..{scheme}:…." is filled in config only'):
        read(tmp_path, LOCAL.replace("command: [", f'command: ["${{{scheme}:x#y}}", '))


def test_a_command_may_hold_what_looks_like_a_reference_and_is_none(tmp_path: Path) -> None:
    launch = read(tmp_path, LOCAL.replace("command: [", 'command: ["${name:0:3}", ')).connector.launch
    assert launch.model_dump()["command"][0] == "${name:0:3}"


def test_a_hash_key_may_be_any_secret(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("0123456789abcdef\n")
    key = {"name": "shop", "connector": CONNECTOR, "hash_key": f"${{file:{tmp_path}/key}}"}
    assert Connection.model_validate(key).filled_hash_key({}) == "0123456789abcdef"
    with pytest.raises(ValidationError, match="a key that is written in a file is no secret"):
        Connection.model_validate({**key, "hash_key": "0123456789abcdef"})


_WITHOUT_EXTRAS = """
import sys
sys.modules.update({"hvac": None, "boto3": None})
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError
shop = Connection.from_file(sys.argv[1])
assert not {"dagster_airbyte_proto.connection.secrets.vault", "requests"} & sys.modules.keys(), "read too early"
try:
    shop.filled_config({})
except ConfigError as error:
    print(error.found)
"""


def test_a_missing_extra_is_named_and_a_file_is_read_without_it(tmp_path: Path) -> None:
    read(tmp_path, LOCAL + 'config: {a: "${vault:secret/data/shop#b}", c: "${aws-sm:shop}"}')
    command = [sys.executable, "-c", _WITHOUT_EXTRAS, str(tmp_path / "shop.yaml")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed == (
        "2 faults\n"
        '  config.a: "${vault:…}" needs the Python module hvac, which is not installed: '
        'pip install "dagster_airbyte_proto[vault]"\n'
        '  config.c: "${aws-sm:…}" needs the Python module boto3, which is not installed: '
        'pip install "dagster_airbyte_proto[aws]"\n'
    )
