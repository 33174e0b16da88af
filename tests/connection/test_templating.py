"""What a partition puts into a config: filled, refused, and put back into a config that the connector rewrote."""

import json
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.connection.templating import fill_templates, has_template, refresh_templates
from dagster_airbyte_proto.errors import ConfigError

_DAY = {"key": "2026-01-02", "start": "2026-01-02T00:00:00+00:00", "end": "2026-01-03T00:00:00+00:00"}


def _connection(config: dict[str, Any], **written: Any) -> Connection:
    connector = {"protocol": "airbyte", "launch": {"kind": "local", "command": "source-faker"}}
    return Connection.model_validate({"name": "shop", "connector": connector, "config": config, **written})


def test_templates_are_filled_wherever_they_stand_in_a_string() -> None:
    config = {
        "start_date": "{{ partition.start }}",
        "window": {"range": "from {{partition.start}} to {{  partition.end }}", "limit": 5},
        "days": ["{{ partition.key }}", True, None],
    }

    assert fill_templates(_connection(config), _DAY).written_config() == {
        "start_date": _DAY["start"],
        "window": {"range": f"from {_DAY['start']} to {_DAY['end']}", "limit": 5},
        "days": ["2026-01-02", True, None],
    }


def test_dimensions_are_named_as_their_partitions_name_them() -> None:
    window = {"key": "2026-01-02|eu", "date": "2026-01-02", "sales region": "eu"}

    filled = fill_templates(_connection({"where": "{{ partition.date }}/{{ partition.sales region }}"}), window)

    assert filled.written_config() == {"where": "2026-01-02/eu"}


def test_a_connection_without_templates_is_left_alone() -> None:
    connection = _connection({"a": "b", "manifest": "{{ config['x'] }} {{ stream_partition.id }}"})

    assert fill_templates(connection, {}) is connection
    assert fill_templates(connection, _DAY) is connection


def test_what_is_the_connectors_own_stays_beside_what_is_ours() -> None:
    manifest = "{{ stream_slice.start }} {{ partition_key.x }} {{ partition.key }} {{ config['partition.key'] }}"

    filled = fill_templates(_connection({"manifest": manifest}), _DAY).written_config()["manifest"]

    assert filled == "{{ stream_slice.start }} {{ partition_key.x }} 2026-01-02 {{ config['partition.key'] }}"


def test_every_unknown_name_is_told_with_its_place_and_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    config = {"a": {"b": "{{ partition.strat }}"}, "c": ["{{ partiton.end }}"], "d": "{{ partition.tenant }}"}
    written = {"connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": "x"}}, "config": config}
    file.write_text(json.dumps(written))

    with pytest.raises(ConfigError) as raised:
        fill_templates(Connection.from_file(file), _DAY)

    assert str(raised.value) == (
        f"config in {file}: 3 faults\n"
        '  config.a.b: "{{ partition.strat }}" is not known; did you mean "{{ partition.start }}"?\n'
        '  config.c[0]: "{{ partiton.end }}" is not known; did you mean "{{ partition.end }}"?\n'
        '  config.d: "{{ partition.tenant }}" is not known\n'
        "This partition has: partition.key, partition.start, partition.end"
    )


def test_a_run_of_no_partition_is_refused() -> None:
    with pytest.raises(ConfigError) as raised:
        fill_templates(_connection({"start_date": "{{ partition.start }}"}), {})

    assert str(raised.value) == (
        'config of connection shop: config.start_date: "{{ partition.start }}" needs a run of a partition\n'
        "Sync one partition: --partition KEY, or assets with a partitions_def. Or write the value itself."
    )


@pytest.mark.parametrize("key", ["${env:PASSWORD}", "a${env:PASSWORD}b", "$${env:PASSWORD}", "$"])
def test_a_partitions_key_cannot_ask_for_a_secret(key: str) -> None:
    connection = _connection({"tenant": "$-{{ partition.key }}", "password": "${env:PASSWORD}"})

    filled = fill_templates(connection, {"key": key}).filled_config({"PASSWORD": "hunter2"})

    assert filled.config == {"tenant": f"$-{key}", "password": "hunter2"}


def test_what_the_environment_fills_is_not_a_template() -> None:
    connection = _connection({"tenant": "{{ partition.key }}", "password": "${env:PASSWORD}"})

    filled = fill_templates(connection, _DAY).filled_config({"PASSWORD": "{{ partition.key }}"})

    assert filled.config == {"tenant": "2026-01-02", "password": "{{ partition.key }}"}


def test_a_config_file_is_filled_too(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text('start: "{{ partition.start }}"\npassword: "${env:PASSWORD}"\n')
    connection = _connection({"unused": 1}).model_copy(update={"config": None, "config_file": file})

    assert fill_templates(connection, _DAY).filled_config({"PASSWORD": "x"}).config == {
        "start": _DAY["start"],
        "password": "x",
    }
    with pytest.raises(ConfigError, match=r"config\.yaml: start: .* needs a run of a partition"):
        fill_templates(connection, {})


def test_a_filled_connection_has_a_digest_of_its_own_and_the_written_one_stays() -> None:
    connection = _connection({"start": "{{ partition.start }}"})
    other_day = {**_DAY, "start": "2027-01-01"}

    filled = [fill_templates(connection, window).filled_config({}) for window in (_DAY, other_day)]

    assert filled[0].digest != filled[1].digest
    assert connection.filled_config({}).config == {"start": "{{ partition.start }}"}
    assert fill_templates(connection, _DAY).origin == connection.origin


def test_a_rewritten_config_gets_this_partitions_words() -> None:
    written = {"start": "{{ partition.start }}", "oauth": {"token": "old", "on": "{{ partition.key }}"}, "tags": ["x"]}
    filled = fill_templates(_connection(written), _DAY).written_config()
    kept = {"start": "2020-01-01", "oauth": {"token": "new", "on": "2020", "expires": 5}, "tags": ["x", "y"], "more": 1}

    assert refresh_templates(kept, written, filled) == {
        "start": _DAY["start"],
        "oauth": {"token": "new", "on": "2026-01-02", "expires": 5},
        "tags": ["x", "y"],
        "more": 1,
    }


@pytest.mark.parametrize(
    ("kept", "wanted"),
    [
        (["2020", "new"], ["2026-01-02", "new"]),
        (["2020"], ["2026-01-02", "b"]),
        ("2020", ["2026-01-02", "b"]),
        (None, ["2026-01-02", "b"]),
    ],
)
def test_a_list_is_renewed_place_by_place_or_whole(kept: Any, wanted: list[str]) -> None:
    written = {"days": ["{{ partition.key }}", "b"]}

    assert refresh_templates({"days": kept}, written, {"days": ["2026-01-02", "b"]}) == {"days": wanted}


def test_templates_are_found_at_any_depth() -> None:
    assert has_template({"a": [{"b": "x {{ partition.key }}"}]})
    assert has_template({"a": "{{ partiton.key }}"})
    assert not has_template({"a": ["{{ other.key }}", 1, None], "{{ partition.key }}": "keys are left alone"})
