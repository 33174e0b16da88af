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


def test_parts_of_one_name_have_a_file_for_each_role() -> None:
    ends = {"source": {"use": "postgres"}, "destination": {"use": "acme/postgres@2"}}
    made = imported_pipeline({**_PIPELINE, **ends, "transforms": [{"use": "mask"}, {"use": "mask"}]}, "file")
    files = ("source_postgres", "mask", "dest_postgres")
    assert made.components == tuple(f"connectors/{each}.wasm" for each in files)
    assert made.document["to"]["connector"]["launch"]["path"] == "connectors/dest_postgres.wasm"


def test_a_pipeline_that_does_not_say_what_becomes_of_bad_records_fails_for_them() -> None:
    document = {**_PIPELINE, "destination": {"use": "dest-x", "config": {}}}
    assert imported_pipeline(document, "file").document["on_error"] == "fail"


def test_secrets_of_vault_are_read_by_the_path_of_its_api() -> None:
    config = {"a": "u:${Vault:secret/db/pg#password}@${HOST}", "b": "${gcp:x/y#z}"}
    made = imported_pipeline({**_PIPELINE, "source": {"use": "source-x", "config": config, "streams": []}}, "file")
    assert made.document["config"] == {"a": "u:${vault:secret/data/db/pg#password}@${env:HOST}", "b": "${gcp:x/y#z}"}
    assert "the secret ${gcp:x/y#z}: put a reference of ours in its place" in made.left


def test_a_secret_that_stands_open_in_a_pipeline_is_named() -> None:
    config = {"primary_key": "id", "login": [{"user": "ann", "password": "hunter2"}], "token": "${TOKEN}"}
    made = imported_pipeline({**_PIPELINE, "source": {"use": "source-x", "config": config}}, "file")
    open_ones = [text for text in made.left if "as it is" in text]
    assert open_ones == [
        "source.config.login.0.password is written in the pipeline as it is: a reference keeps it out of files"
    ]


def test_what_is_beside_the_known_words_is_named_too() -> None:
    source = {
        **_PIPELINE["source"],
        "streams": [{"name": "${STREAM}"}],
        "permissions": {"network": {"allowed_hosts": [], "allow_tls": True}, "gpu": {"devices": [1]}},
        "limits": {"timeout_seconds": 60, "max_cpu": 2},
    }
    query = {"query": "SELECT * FROM input WHERE id > ${LEAST}", "dialect": "x"}
    step = {"use": "transform-sql", "config": query, "limits": {"timeout_seconds": 1}}
    made = imported_pipeline({**_PIPELINE, "source": source, "transforms": [step]}, "file")
    assert set(made.left) >= {
        "source.permissions.network.allow_tls",
        "source.permissions.gpu",
        "source.limits.max_cpu",
        "transforms.0.limits",
        "transforms.0.config.dialect",
        "the variable in source.streams.0.name: put its value there",
        "the variable in transforms.0.config.query: put its value there",
    }
    assert made.document["connector"]["limits"] == {"timeout_seconds": 60}
    assert made.variables == ("PG_PASSWORD", "PORT")


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("SELECT country, count(*) FROM input GROUP BY country", "GROUP BY, an aggregate"),
        ("select max(id) from input", "an aggregate"),
        ("SELECT DISTINCT id FROM input", "DISTINCT"),
        ("SELECT id, row_number() OVER (PARTITION BY a) AS n FROM input", "a window"),
        ("SELECT sum(a) OVER () FROM input", "a window"),
        ("SELECT a.id FROM input a\nJOIN input b ON a.id = b.id", "JOIN"),
        ("SELECT id FROM input ORDER  BY id LIMIT 3", "ORDER BY, LIMIT"),
        ("SELECT id FROM input UNION ALL SELECT id FROM input", "UNION"),
        ("SELECT id FROM input WHERE id IN (SELECT id FROM input)", "a query within an expression"),
    ],
)
def test_a_query_that_groups_or_sorts_is_named(query: str, named: str) -> None:
    step = {"use": "transform-sql", "config": {"query": query}}
    made = imported_pipeline({**_PIPELINE, "transforms": [step]}, "file")
    [said] = [text for text in made.left if "the query of" in text]
    assert said.startswith(f"{named} in the query of transforms.0: `sql` selects and filters rows")
    assert made.document["transforms"] == [{"sql": query}]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, least(a, b) AS low, account(c) AS c FROM input WHERE a IS NOT DISTINCT FROM b",
        "SELECT 'GROUP BY' AS a, \"order by\" FROM (SELECT * FROM input) -- LIMIT 3\nWHERE limits > 1 /* JOIN */",
        "WITH some AS (SELECT id, offset FROM input) SELECT * FROM some",
    ],
)
def test_a_query_that_selects_and_filters_is_not(query: str) -> None:
    step = {"use": "transform-sql", "config": {"query": query}}
    made = imported_pipeline({**_PIPELINE, "transforms": [step]}, "file")
    assert [text for text in made.left if "query" in text] == []


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


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"destination": {"use": "dest-x", "write_mode": "merge"}}, "destination.write_mode is 'merge'"),
        ({"destination": {"use": "dest-x", "on_data_error": "log"}}, "destination.on_data_error is 'log'"),
        ({"source": {"use": "source-x", "streams": [{"name": "a", "sync_mode": "x"}]}}, "streams.a.sync_mode is 'x'"),
        ({"transforms": [{"config": {}}]}, "transforms.0 names no connector"),
        ({"source": {"use": "source-x", "streams": [{}]}}, "source.streams.0 has no name"),
        ({"source": {"use": "source-x", "limits": {"max_memory": "lots"}}}, "'lots', and no size"),
        ({"source": {"use": "source-x", "limits": {"max_memory": "9" * 400}}}, "9', and no size"),
        ({"source": {"use": "source-x", "config": "x"}}, "source.config is no mapping"),
        ({"source": {"use": "source-x", "permissions": {"fs": {"allowed_preopens": "/data"}}}}, "is no list"),
        ({"source": {"use": "source-x", "streams": 5}}, "source.streams is no list"),
        ({"source": {"use": "source-x", "streams": [{"name": "a", "columns": "id"}]}}, "streams.a.columns is no list"),
        ({"source": {"use": "source-x", "streams": [{"name": "a", "primary_key": 1}]}}, "a.primary_key is no list"),
        ({"destination": {"use": "dest-x", "primary_key": {"id": 1}}}, "destination.primary_key is no list"),
        ({"transforms": [{"use": "transform-validate", "config": {"rules": 1}}]}, "transforms.0.config.rules is"),
    ],
)
def test_a_fault_says_where_it_is(change: dict[str, Any], found: str) -> None:
    with pytest.raises(ConfigError, match=found):
        imported_pipeline({**_PIPELINE, **change}, "file")


def test_other_files_are_no_pipelines() -> None:
    assert is_pipeline(_PIPELINE)
    assert not is_pipeline({"plugins": {"extractors": []}})
    assert not is_pipeline({"source": {"use": "x"}})
