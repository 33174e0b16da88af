"""Push files from a Syncmaven project, by its files."""

from typing import Any

import pytest
from pydantic import ValidationError

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.connection.syncmaven.project import (
    ImportedSync,
    ProjectFile,
    SyncmavenProject,
    imported_sync,
)
from dagster_airbyte_proto.errors import ConfigError

_SQL = """{{config "cursor" "updated_at"}}
{{ config 'datasource' '{{env.PG}}' }}
select id, email, updated_at from users
where :cursor is null or updated_at >= :cursor::timestamp
order by updated_at;
"""
_NPM = {"package": {"type": "npm", "package": "@acme/crm@1.2.0"}, "credentials": {"apiKey": "{{ env.KEY }}"}}


def imported(sync: dict[str, Any], connection: dict[str, Any] | None = None, model: Any = _SQL) -> ImportedSync:
    project = SyncmavenProject(
        {"users": ProjectFile("users", model)},
        {"crm": ProjectFile("crm", connection or _NPM)},
        {"sync": ProjectFile("sync", {"model": "users", "destination": "crm", "stream": "contacts", **sync})},
    )
    return imported_sync(project, project.syncs["sync"])


def test_a_sync_becomes_a_push() -> None:
    found = imported({"options": {"list": "vip"}, "checkpointEvery": 500, "mapping": {"id": "id", "mail": "email"}})
    assert found.document == {
        "connector": {"protocol": "syncmaven", "launch": {"kind": "npm", "package": "@acme/crm@1.2.0"}},
        "config": {"apiKey": "${env:KEY}"},
        "push": {
            "contacts": {
                "sql": "select id, email, updated_at from users\n"
                "where NULL is null or updated_at >= NULL::timestamp\norder by updated_at",
                "mode": "append",
                "changes": "cursor",
                "cursor": "updated_at",
                "map": {"id": "id", "mail": "email"},
                "options": {"list": "vip"},
            }
        },
        "checkpoint_rows": 500,
    }
    assert found.variables == ("KEY",)
    assert any(text.startswith(":cursor in the query") for text in found.left)
    assert any("names no key" in text for text in found.left)


def test_settings_in_comments_leave_the_query_whole() -> None:
    model = (
        '--{{ config "cursor" "updated_at" }}\n'
        '-- {{ config "datasource" env.PG }}\n'
        "select id, updated_at from users union all\n"
        "select id, updated_at from guests"
    )
    push = imported({}, model=model).document["push"]["contacts"]
    assert push["cursor"] == "updated_at"
    assert [line for line in push["sql"].splitlines() if not line.startswith("--")] == [
        "select id, updated_at from users union all",
        "select id, updated_at from guests",
    ]


@pytest.mark.parametrize(
    ("package", "launch"),
    [
        ({"image": "acme/crm:1"}, {"kind": "docker", "image": "acme/crm:1"}),
        (
            {"type": "npm", "dir": "./crm", "command": "node 'dist/my index.js'"},
            {"kind": "local", "command": ["node", "dist/my index.js"], "working_folder": "./crm"},
        ),
    ],
)
def test_each_kind_of_package_is_a_launch(package: dict[str, str], launch: dict[str, Any]) -> None:
    assert imported({}, {"package": package}).document["connector"]["launch"] == launch


@pytest.mark.parametrize(
    ("sync", "connection", "model", "left"),
    [
        ({"enrichments": [{"connection": "crm"}]}, _NPM, _SQL, "the columns that the enrichment by crm fills"),
        ({"enrichment": {"connection": "crm"}, "mapping": {"id": "id"}}, _NPM, _SQL, "its mapping comes before"),
        ({"stream": None}, _NPM, _SQL, "it names no stream"),
        ({"mapping": [{"to": "a"}]}, _NPM, _SQL, "its mapping"),
        ({"options": {"list": ["{{ env.LIST }}"]}}, _NPM, _SQL, "the templates in its options"),
        ({}, {"package": {"type": "npm", "package": "crm"}}, _SQL, "the package crm has no exact version"),
        ({}, {**_NPM, "credentials": {"a": {"key": "${env.KEY:none}"}}}, _SQL, "the template in credentials.a.key"),
        ({}, {**_NPM, "credentials": {"key": "s3cret"}}, _SQL, "credentials.key is written in the project"),
        ({}, _NPM, {"query": "select {{x}} from t", "deleteField": "gone"}, "deleteField of model users"),
        ({}, _NPM, {"query": "select {{x}} from t"}, "the templates in the query of model users"),
        ({"schedule": "@daily"}, _NPM, _SQL, "schedule of sync sync"),
        ({}, {**_NPM, "rateLimit": 5}, _SQL, "rateLimit of the connection of sync sync"),
        ({}, {"package": {**_NPM["package"], "env": {}}}, _SQL, "env of the package of sync sync"),
        ({}, _NPM, {"query": "select 1", "timeout": 5}, "timeout of model users"),
    ],
)
def test_what_cannot_be_carried_over_is_named(
    sync: dict[str, Any], connection: dict[str, Any], model: Any, left: str
) -> None:
    assert [text for text in imported(sync, connection, model).left if text.startswith(left)]


def test_an_enrichment_becomes_a_transform_that_waits_for_its_columns() -> None:
    package = {"type": "npm", "package": "@acme/geo@1.0.0"}
    own = {"connection": {"package": package, "credentials": {"key": "{{env.GEO}}"}}, "options": {"language": "en"}}
    found = imported({"enrichments": [{"connection": "crm"}, own]})
    launches = [{"kind": "npm", "package": name} for name in ("@acme/crm@1.2.0", "@acme/geo@1.0.0")]
    first, second = ({"connector": {"protocol": "syncmaven", "launch": launch}} for launch in launches)
    assert found.document["transforms"] == [
        {**first, "config": {"apiKey": "${env:KEY}"}},
        {**second, "config": {"key": "${env:GEO}"}, "options": {"language": "en"}},
    ]
    assert found.variables == ("KEY", "GEO")
    with pytest.raises(ValidationError, match="name the columns that the connector fills"):
        Connection.model_validate({"name": "crm", **found.document})
    for each in found.document["transforms"]:
        each["columns"] = {"city": "string"}
    assert Connection.model_validate({"name": "crm", **found.document}).enrichments.keys() == {0, 1}


def test_a_model_without_a_cursor_sends_all_rows() -> None:
    push = imported({}, model={"query": "select 1 as id", "datasource": "pg"}).document["push"]["contacts"]
    assert push == {"sql": "select 1 as id", "mode": "append", "changes": "all"}


def test_a_destination_may_stand_in_its_sync() -> None:
    found = imported({"destination": {"package": {"image": "acme/crm:1"}}})
    assert found.document["connector"]["launch"]["image"] == "acme/crm:1"


@pytest.mark.parametrize(
    ("sync", "connection", "model", "error"),
    [
        ({"model": "orders"}, _NPM, _SQL, "there is no model orders"),
        ({"destination": "erp"}, _NPM, _SQL, "there is no connection erp"),
        ({"enrichments": ["geo"]}, _NPM, _SQL, "there is no connection geo"),
        ({"enrichments": {"connection": "geo"}}, _NPM, _SQL, "there is no connection geo"),
        ({"enrichments": 5}, _NPM, _SQL, "its enrichments are no list"),
        ({"enrichments": ["crm", None]}, _NPM, _SQL, "its enrichments are no list of connections"),
        ({}, {"credentials": {}}, _SQL, "has no package"),
        ({}, {"package": {"type": "pip"}}, _SQL, "neither an image nor one of npm"),
        ({}, _NPM, {"datasource": "pg"}, "model users has no query"),
        ({}, _NPM, ["a list"], "it is no mapping"),
    ],
)
def test_a_project_that_is_not_whole_is_refused(
    sync: dict[str, Any], connection: dict[str, Any], model: Any, error: str
) -> None:
    with pytest.raises(ConfigError, match=error):
        imported(sync, connection, model)
