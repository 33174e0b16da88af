"""One value for the config of a connector: written, filled, rewritten, stored."""

from typing import Any

import pytest

from dagster_airbyte_proto.checkpoints.stored_config import StoredConfig
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.sync.connector.connector_config import ConnectorConfig, connector_config

_ENVIRONMENT = {"PASSWORD": "hunter2"}
_WRITTEN = {"password": "${env:PASSWORD}", "from": "{{ partition.key }}", "count": 1}


def _config(written: dict[str, Any] | None = None, window: dict[str, str] | None = None) -> ConnectorConfig:
    connector = {"protocol": "airbyte", "launch": {"kind": "local", "command": ["source"]}}
    connection = Connection.model_validate({"name": "shop", "connector": connector, "config": written or _WRITTEN})
    return connector_config(connection, _ENVIRONMENT, window)


def test_references_and_templates_are_filled() -> None:
    config = _config(window={"key": "monday"})
    assert config.current == {"password": "hunter2", "from": "monday", "count": 1}
    assert config.secrets == {"hunter2"}
    assert not config.has_open_templates


def test_without_a_partition_templates_stay() -> None:
    config = _config()
    assert (config.current["from"], config.has_open_templates) == ("{{ partition.key }}", True)


def test_an_empty_window_refuses_templates() -> None:
    with pytest.raises(ConfigError):
        _config(window={})


def test_partitions_share_a_digest() -> None:
    monday, tuesday = (_config(window={"key": key}) for key in ("monday", "tuesday"))
    assert monday.digest == tuesday.digest == _config().digest
    assert monday.digest != _config({**_WRITTEN, "count": 2}).digest


def test_the_config_that_was_given_changes_nothing() -> None:
    config = _config(window={"key": "monday"})
    assert config.with_rewritten(dict(config.current)) is config


def test_a_rewritten_config_is_stored_with_references_in_the_place_of_values() -> None:
    config = _config(window={"key": "monday"}).with_rewritten({"password": "hunter2", "from": "monday", "seen": 7})
    assert config.rewritten == {"password": "${env:PASSWORD}", "from": "monday", "seen": 7}
    assert config.current == {"password": "hunter2", "from": "monday", "seen": 7}


def test_a_new_value_in_the_place_of_a_reference_is_a_secret() -> None:
    config = _config().with_rewritten({**_config().current, "password": "renewed", "refresh_token": "fresh"})
    assert config.secrets == {"hunter2", "renewed", "fresh"}


def test_what_the_launcher_added_is_not_stored() -> None:
    config = _config().with_rewritten({**_config().current, "__injected_manifest": {}, "seen": 1})
    assert config.rewritten == {**_WRITTEN, "seen": 1}


def test_a_stored_config_gets_the_values_of_its_partition() -> None:
    monday = _config(window={"key": "monday"}).with_rewritten({"password": "hunter2", "from": "monday", "seen": 7})
    assert monday.rewritten is not None
    tuesday = _config(window={"key": "tuesday"}).with_stored(StoredConfig(monday.rewritten, monday.digest))
    assert tuesday.current == {"password": "hunter2", "from": "tuesday", "seen": 7}


def test_a_stored_config_gives_way_when_the_user_changes_theirs() -> None:
    config = _config()
    assert config.with_stored(StoredConfig({"seen": 1}, based_on="another")) is config
    assert config.with_stored(None) is config


def test_no_value_shows_in_its_repr() -> None:
    config = _config().with_rewritten({**_config().current, "token": "fresh"})
    assert not {"hunter2", "fresh"} & set(repr(config).split("'"))
