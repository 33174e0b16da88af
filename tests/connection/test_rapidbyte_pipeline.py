"""Pipelines of Rapidbyte as connection files."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from dagster_airbyte_proto.connection.rapidbyte.pipeline import imported_pipeline, is_pipeline
from dagster_airbyte_proto.errors import ConfigError

_PIPELINE: dict[str, Any] = {
    "version": "1.0",
    "pipeline": "shop",
    "source": {
        "use": "source-postgres",
        "config": {"host": "db.internal", "password": "${PG_PASSWORD}", "ports": ["${PORT}"]},
        "streams": [
            {"name": "users", "sync_mode": "incremental", "cursor_field": "updated_at", "columns": ["id", "email"]},
            {
                "name": "orders",
                "sync_mode": "cdc",
                "cursor_field": "lsn",
                "primary_key": "order_id",
                "partition_key": "day",
            },
        ],
        "permissions": {"network": {"allowed_hosts": ["db.internal"]}, "fs": {"allowed_preopens": []}},
        "limits": {"max_memory": "128mb", "timeout_seconds": 60},
    },
    "transforms": [
        {"use": "transform-sql", "config": {"query": "SELECT * FROM input"}},
        {"use": "transform-validate", "config": {"rules": [{"assert_not_null": "id"}]}},
        {"use": "acme/transform-mask@2", "config": {"salt": "${SALT}"}},
    ],
    "destination": {
        "use": "dest-postgres",
        "config": {"schema": "raw"},
        "write_mode": "upsert",
        "primary_key": ["id"],
        "on_data_error": "skip",
        "schema_evolution": {"new_column": "ignore", "type_change": "fail", "renamed_column": "follow"},
    },
    "resources": {
        "parallelism": 4,
        "compression": "lz4",
        "checkpoint_interval_bytes": "1.5mib",
        "autotune": {"enabled": True, "pin_copy_flush_bytes": "4mb", "sampling": 3},
    },
    "state": {"backend": "sqlite"},
}


def test_each_part_becomes_its_own_or_is_named() -> None:
    made = imported_pipeline(_PIPELINE, "file")
    assert made.name == "shop"
    assert made.variables == ("PG_PASSWORD", "PORT", "SALT")
    assert set(made.components) == {
        "connectors/source_postgres.wasm",
        "connectors/transform_mask.wasm",
        "connectors/dest_postgres.wasm",
    }
    document = made.document
    assert document["config"]["password"] == "${env:PG_PASSWORD}"
    assert document["connector"]["limits"] == {"max_memory": 128 << 20, "timeout_seconds": 60}
    assert document["connector"]["permissions"] == {
        "network": {"allowed_hosts": ["db.internal"]},
        "fs": {"allowed_preopens": []},
    }
    assert document["streams"] == {
        "users": {
            "read": "incremental",
            "write": "append_dedup",
            "cursor": "updated_at",
            "primary_key": ["id"],
            "select": ["id", "email"],
        },
        "orders": {"read": "incremental", "write": "append_dedup", "primary_key": ["order_id"]},
    }
    assert document["on_error"] == "skip"
    assert document["schema_evolution"] == {"new_column": "ignore", "type_change": "fail"}
    assert document["overrides"] == {"effective_parallelism": 4, "copy_flush_bytes_override": 4 << 20}
    assert document["load"] == {"max_bytes": 3 << 19}
    for named in (
        "state",
        "source.streams.orders.partition_key",
        "source.streams.orders.cursor_field",
        "destination.schema_evolution.renamed_column",
        "resources.compression",
    ):
        assert named in made.left
    assert "resources.autotune.sampling" in made.left
    assert any("the columns that acme/transform-mask@2 fills" in text for text in made.left)


def test_it_is_a_connection_once_its_columns_are_named(tmp_path: Path) -> None:
    from dagster_airbyte_proto.connection import Connection

    document = dict(imported_pipeline(_PIPELINE, "file").document)
    file = tmp_path / "shop.yaml"
    file.write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError, match="name the columns that the connector fills"):
        Connection.from_file(file)
    document["transforms"][2]["columns"] = {"email": "string"}
    file.write_text(yaml.safe_dump(document))
    connection = Connection.from_file(file)
    assert connection.connector.limits.max_memory == 128 << 20
    assert connection.to is not None and connection.to.connector.protocol == "rapidbyte"


def test_what_no_connection_knows_is_named() -> None:
    source = {
        "use": "postgres",
        "permissions": {"network": {"allowed_domains": ["db"]}, "env": {"allowed_vars": ["A"]}, "sockets": []},
        "streams": [{"name": "users", "sync_mode": "snapshot"}],
    }
    query = {"use": "transform-sql", "config": {"query": "SELECT '${SHOP}' AS shop FROM input"}}
    pipeline = {"source": source, "transforms": [query], "destination": {"use": "dest-x", "on_data_error": "halt"}}
    made = imported_pipeline(pipeline, "file")
    assert made.document["connector"]["permissions"] == {"env": {"allowed_vars": ["A"]}}
    assert made.document["streams"] == {"users": {"write": "append"}}
    for named in (
        "source.permissions.network.allowed_domains",
        "source.permissions.sockets",
        "source.streams.users.sync_mode: snapshot, which is none of full_refresh, incremental, cdc",
        "destination.on_data_error: halt, which is none of dlq, skip, fail",
        "transforms.0.config.query: its variables; write their values into the query",
    ):
        assert named in made.left


def test_a_name_for_both_ends_has_a_file_for_each() -> None:
    ends = {"source": {"use": "acme/postgres@1"}, "destination": {"use": "postgres"}}
    made = imported_pipeline({**ends, "transforms": [{"use": "mask"}, {"use": "mask"}]}, "file")
    assert made.components == tuple(f"connectors/{each}.wasm" for each in ("postgres", "mask", "destination_postgres"))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"destination": {"use": "dest-x", "write_mode": "merge"}}, "destination.write_mode is 'merge'"),
        ({"transforms": [{"config": {}}]}, "transforms.0 names no connector"),
        ({"source": {"use": "source-x", "streams": [{}]}}, "source.streams.0 has no name"),
        ({"source": {"use": "source-x", "limits": {"max_memory": "lots"}}}, "'lots', and no size"),
        ({"source": {"use": "source-x", "config": "x"}}, "source.config is no mapping"),
        ({"source": {"use": "source-x", "permissions": {"fs": {"allowed_preopens": "/data"}}}}, "is no list"),
    ],
)
def test_a_fault_says_where_it_is(change: dict[str, Any], found: str) -> None:
    with pytest.raises(ConfigError, match=found):
        imported_pipeline({**_PIPELINE, **change}, "file")


def test_other_files_are_no_pipelines() -> None:
    assert is_pipeline(_PIPELINE)
    assert not is_pipeline({"plugins": {"extractors": []}})
    assert not is_pipeline({"source": {"use": "x"}})
