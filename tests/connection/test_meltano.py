"""A Meltano project's taps, as connections say the same. What Meltano itself makes of this project was looked up with
`meltano config print` and `meltano invoke --dump=catalog`."""

from typing import Any

import pytest
import yaml

from dagster_airbyte_proto.connection.meltano.plugin_config import (
    PluginConfig,
    connection_config,
    pipeline_variables,
)
from dagster_airbyte_proto.connection.meltano.project import MeltanoProject, Plugin, merged_documents, parsed_project
from dagster_airbyte_proto.connection.meltano.selection import selected_streams
from dagster_airbyte_proto.errors import ConfigError

_PROJECT: dict[str, Any] = yaml.safe_load(r"""
default_environment: dev
env: {WHERE: /srv/$PART}
environments:
- name: dev
  config: {plugins: {extractors: [{name: tap-shop, config: {start_date: '2026-01-01'}}]}}
- name: prod
  env: {PART: prod}
  config: {plugins: {extractors: [{name: tap-shop, config: {host: prod.example}}]}}
plugins:
  extractors:
  - name: tap-shop
    variant: us
    config:
      host: ${SHOP_HOST}
      password: hunter2
      oauth.client_id: abc
      oauth: {client_secret: s3cret}
      path: $WHERE/x
      near: $MELTANO_PROJECT_ROOT/y
      raw: \$NOT and ${env:X}
    select: [users.*, '!users.email', orders.id, orders.to.city]
    metadata:
      users: {replication-method: INCREMENTAL, replication-key: updated_at}
      '*': {table-key-properties: [id]}
  - name: tap-shop--eu
    inherit_from: tap-shop
    config: {host: eu.example, _load_schema: europe}
    select: ['*.*']
  - name: tap-bare
    pip_url: git+https://example.com/tap-bare.git
    config: {api_key: abc, api_url: https://example.com}
    schema: {users: {id: {type: string}}}
  loaders: [{name: target-jsonl}]
jobs: [{name: nightly, tasks: [tap-shop target-jsonl]}]
schedules: [{name: daily, interval: '@daily', job: nightly}]
""")
_LOCK = {
    "name": "tap-shop",
    "variant": "us",
    "pip_url": "tap-shop~=1.0",
    "executable": "tap-shop",
    "settings": [
        {"name": "host"},
        {"name": "port", "kind": "integer"},
        {"name": "password", "kind": "password"},
        {"name": "oauth.client_secret", "sensitive": True},
        {"name": "flag", "kind": "boolean"},
        {"name": "tokens_seen", "sensitive": False},
    ],
}
_DOTENV = {"TAP_SHOP_PORT": "5433", "TAP_SHOP_FLAG": "false", "TAP_SHOP_HOST": "elsewhere", "TAP_BARE_LIMIT": "3"}


def _project(environment: str | None = None) -> MeltanoProject:
    return parsed_project(_PROJECT, [_LOCK], environment)


def _tap(name: str, environment: str | None = None) -> Plugin:
    return next(tap for tap in _project(environment).taps if tap.name == name)


def _config(name: str, environment: str | None = None, dotenv: dict[str, str] | None = None) -> PluginConfig:
    project, tap = _project(environment), _tap(name, environment)
    return connection_config(tap, project, pipeline_variables(project, "/project", tap, None), dotenv or {})


def test_a_config_names_the_variables_that_meltano_would_fill() -> None:
    made = _config("tap-shop")
    assert made.values == {
        "host": "${env:SHOP_HOST}",
        "password": "${env:TAP_SHOP_PASSWORD}",
        "oauth": {"client_id": "abc", "client_secret": "${env:TAP_SHOP_OAUTH_CLIENT_SECRET}"},
        "path": "/srv/${env:PART}/x",
        "near": "/project/y",
        "raw": "$NOT and $${env:X}",
        "start_date": "2026-01-01",
    }
    assert set(made.variables) == {"SHOP_HOST", "TAP_SHOP_PASSWORD", "TAP_SHOP_OAUTH_CLIENT_SECRET", "PART"}


def test_no_secret_of_the_project_is_written_into_a_connection() -> None:
    made = _config("tap-shop")
    assert "hunter2" not in str(made.values) and "s3cret" not in str(made.values)
    assert made.open_secrets == {
        "password": "TAP_SHOP_PASSWORD",
        "oauth.client_secret": "TAP_SHOP_OAUTH_CLIENT_SECRET",
    }
    assert _config("tap-bare").values == {"api_key": "${env:TAP_BARE_API_KEY}", "api_url": "https://example.com"}


def test_variables_of_dotenv_go_before_what_the_project_says() -> None:
    values = _config("tap-shop", dotenv=_DOTENV).values
    assert (values["port"], values["flag"], values["host"]) == (5433, False, "${env:TAP_SHOP_HOST}")
    assert _config("tap-shop--eu", dotenv=_DOTENV).values["port"] == 5433
    assert _config("tap-bare", dotenv=_DOTENV).values["limit"] == "${env:TAP_BARE_LIMIT}"


def test_defaults_of_a_definition_are_passed_as_meltano_passes_them() -> None:
    settings = [
        {"name": "api_url", "value": "https://example.com"},
        {"name": "page", "value": 100},
        {"name": "days", "value": 7, "aliases": ["window"]},
        {"name": "paths.schema", "value": "$MELTANO_EXTRACT__LOAD_SCHEMA"},
        {"name": "paths.root", "value": "$MELTANO_PROJECT_ROOT/out"},
        {"name": "nobody", "value": "$SET_BY_NOBODY"},
        {"name": "none", "value": None},
    ]
    document = {
        "environments": [
            {"name": "dev", "config": {"plugins": {"extractors": [{"name": "tap-x", "config": {"page": None}}]}}}
        ],
        "plugins": {
            "extractors": [{"name": "tap-x", "config": {"page": 5, "window": 1, "stage": "$MELTANO_ENVIRONMENT"}}]
        },
    }
    project = parsed_project(document, [{"name": "tap-x", "settings": settings}], "dev")
    [tap] = project.taps
    made = connection_config(tap, project, pipeline_variables(project, "/project", tap, None), {})
    assert made.values == {
        "api_url": "https://example.com",
        "page": 5,
        "days": 1,
        "paths": {"schema": "tap_x", "root": "/project/out"},
        "stage": "dev",
    }
    assert made.variables == ()


def test_values_have_the_form_that_a_definition_gives_them() -> None:
    settings = [
        {"name": "ssl", "kind": "boolean", "value": False, "value_post_processor": "stringify"},
        {"name": "tables", "kind": "array", "value_post_processor": "stringify"},
        {"name": "role", "value_processor": "upcase_string"},
        {"name": "owner", "value_processor": "upcase_string"},
        {"name": "port", "kind": "integer"},
        {"name": "verbose", "kind": "boolean"},
        {"name": "pin", "kind": "integer", "sensitive": True},
        {"name": "empty", "kind": "array", "value_post_processor": "stringify"},
    ]
    config = {
        "ssl": True,
        "tables": ["a"],
        "role": "reader",
        "owner": "$OWNER",
        "port": "5432",
        "verbose": "no",
        "pin": "1",
        "empty": None,
    }
    document = {"plugins": {"extractors": [{"name": "tap-x", "config": config}]}}
    project = parsed_project(document, [{"name": "tap-x", "settings": settings}])
    assert connection_config(project.taps[0], project, {}, {}).values == {
        "ssl": "true",
        "tables": '["a"]',
        "role": "READER",
        "owner": "${env:OWNER}",
        "port": 5432,
        "verbose": False,
        "pin": "${env:TAP_X_PIN}",
    }
    assert connection_config(project.taps[0], project, {}, {"TAP_X_SSL": "false"}).values["ssl"] == "false"


def test_secrets_inside_of_lists_are_not_written_either() -> None:
    config = {"accounts": [{"name": "a", "api-key": "s3cret-1"}, {"passphrase": "s3cret-2"}], "tokens_seen": ["x"]}
    lock = {"name": "tap-x", "settings": [{"name": "tokens_seen", "sensitive": False}]}
    project = parsed_project({"plugins": {"extractors": [{"name": "tap-x", "config": config}]}}, [lock])
    made = connection_config(project.taps[0], project, {}, {})
    assert "s3cret" not in str(made.values)
    assert made.values["accounts"][0] == {"name": "a", "api-key": "${env:TAP_X_ACCOUNTS_0_API_KEY}"}
    assert made.open_secrets["accounts.1.passphrase"] == "TAP_X_ACCOUNTS_1_PASSPHRASE"
    assert made.values["tokens_seen"] == ["x"]


def test_an_environment_goes_before_the_project() -> None:
    values = _config("tap-shop", "prod").values
    assert (values["host"], values["path"]) == ("prod.example", "/srv/prod/x")
    with pytest.raises(ConfigError, match="there is no 'test'"):
        _project("test")


def test_an_heir_has_what_it_does_not_say_itself() -> None:
    heir = _tap("tap-shop--eu")
    assert (heir.pip_url, heir.executable, heir.load_schema) == ("tap-shop~=1.0", "tap-shop", "europe")
    values = _config("tap-shop--eu").values
    assert (values["host"], values["oauth"]["client_id"]) == ("eu.example", "abc")


def test_an_heir_of_itself_is_refused_and_no_other() -> None:
    taps = [{"name": "a", "inherit_from": "b"}, {"name": "b", "inherit_from": "a"}, {"name": "c"}]
    found = [tap.error for tap in parsed_project({"plugins": {"extractors": taps}}).taps]
    assert [error and error.found for error in found] == ["it inherits from itself", "it inherits from itself", None]


@pytest.mark.parametrize(
    ("file", "is_its_own"), [("tap-x", True), ("tap-x--acme", True), ("tap-x--other", False), ("tap-xy", False)]
)
def test_a_lock_that_cannot_be_read_is_an_error_of_its_plugin_alone(file: str, *, is_its_own: bool) -> None:
    error = ConfigError("reading a lock", "it is not JSON")
    taps = [{"name": "tap-x", "variant": "acme"}, {"name": "tap-heir", "inherit_from": "tap-x"}]
    project = parsed_project({"plugins": {"extractors": taps}}, unread={file: error})
    assert [tap.error for tap in project.taps] == [error if is_its_own else None] * 2


def test_a_parent_that_is_no_name_is_refused() -> None:
    [tap] = parsed_project({"plugins": {"extractors": [{"name": "tap-x", "inherit_from": ["tap-y"]}]}}).taps
    assert str(tap.error).startswith("reading plugin tap-x: its inherit_from is no name")


@pytest.mark.parametrize(
    "wrong",
    [
        {"environments": 5},
        {"default_environment": ["dev"]},
        {"jobs": True, "schedules": 1},
        {"plugins": {"extractors": [{"name": "tap-x", "settings": 3}], "loaders": 4}},
    ],
)
def test_a_part_that_is_no_list_counts_as_none(wrong: dict[str, Any]) -> None:
    project = parsed_project({"plugins": {"extractors": [{"name": "tap-x"}]}, **wrong})
    assert [tap.name for tap in project.taps] == ["tap-x"]
    assert project.not_imported == ()


def test_what_cannot_be_carried_over_is_named() -> None:
    assert _project().not_imported == (
        "loaders target-jsonl: tables are written by airbyte-proto itself; with --loader NAME the records go there",
        "job nightly: make it a Dagster job over its taps' assets",
        "schedule daily (@daily): make it a Dagster schedule",
    )
    assert _tap("tap-bare").not_imported == (
        "schema: types are changed by `types` of the stream, or where the table is read",
    )


def test_settings_of_meltano_itself_that_a_connection_cannot_express_are_named() -> None:
    config = {"_config_path": "more.json", "_select": ["users.*"], "_schema": {"users": {"id": {"type": "string"}}}}
    [tap] = parsed_project({"plugins": {"extractors": [{"name": "tap-x", "config": config}]}}).taps
    assert (tap.config, tap.select) == ({}, ("users.*",))
    assert tap.not_imported == (
        "config _config_path: connections have nothing like it",
        "config _schema.users.id.type: connections have nothing like it",
    )


def test_included_files_are_one_project() -> None:
    parts = [{"plugins": {"extractors": [{"name": name}]}, "version": name} for name in ("a", "b")]
    assert merged_documents(parts) == {"plugins": {"extractors": [{"name": "a"}, {"name": "b"}]}, "version": "a"}


def test_rules_that_name_streams_need_no_catalog() -> None:
    assert selected_streams(_tap("tap-shop"), None) == (
        {
            "users": {"read": "incremental", "cursor": "updated_at", "primary_key": ["id"], "exclude": ["email"]},
            "orders": {"primary_key": ["id"], "select": ["id", ["to", "city"]]},
        },
        (),
        False,
    )


_COLUMNS = {"users": ["id", "email", "name"], "public-a": ["id", "email"], "public-b": ["q"], "secret": ["id"]}


@pytest.mark.parametrize(
    ("rules", "streams"),
    [
        ([], None),
        (["*.*"], None),
        (["users"], {"users": {}}),
        (["users.*", "!users.email"], {"users": {"exclude": ["email"]}}),
        (["public-*.*"], {"public-a": {}, "public-b": {}}),
        (["*.*", "!secret"], {"users": {}, "public-a": {}, "public-b": {}}),
        (["*.*", "!secret.*"], {"users": {}, "public-a": {}, "public-b": {}}),
        (["users.*", "!*.e*"], {"users": {"exclude": ["email"]}}),
        (["users.*n*", "users.id"], {"users": {"select": ["name", "id"]}}),
        (["users.id", "!users.id"], {}),
    ],
)
def test_patterns_are_worked_out_on_the_catalog(rules: list[str], streams: dict[str, Any] | None) -> None:
    assert selected_streams(Plugin("tap", select=tuple(rules)), _COLUMNS) == (streams, (), False)


def test_a_filter_leaves_out_streams() -> None:
    assert selected_streams(Plugin("tap", select_filter=("!public-*",)), _COLUMNS).streams == {
        "users": {},
        "secret": {},
    }
    assert selected_streams(Plugin("tap", select_filter=("users",)), _COLUMNS).streams == {"users": {}}


def test_without_a_catalog_patterns_are_named() -> None:
    chosen = selected_streams(Plugin("tap", select=("users.*", "public-*.*", "!*.email")), None)
    assert chosen == ({"users": {"exclude": ["email"]}}, ("select public-*.*: it needs the tap's catalog",), True)
    chosen = selected_streams(Plugin("tap", select=("*.*", "!secret")), None)
    assert chosen.needs_catalog
    assert chosen.not_imported == (
        "select: secret is excluded from all streams, which are not known without the tap's catalog",
    )


def test_metadata_of_a_stream_with_a_dot_in_its_name_is_of_that_stream() -> None:
    metadata = {"db.users": {"replication-key": "at"}, "db.old": {"selected": False}}
    document = {"plugins": {"extractors": [{"name": "tap-x", "metadata": metadata}]}}
    [tap] = parsed_project(document).taps
    chosen = selected_streams(tap, {"db.users": ["id", "at"], "db.old": ["id"]})
    assert chosen == ({"db.users": {"cursor": "at"}}, (), False)


def test_metadata_selects_too() -> None:
    tap = Plugin("tap", metadata={"secret": {"selected": False}, "users": {"replication-method": "FULL_TABLE"}})
    streams = selected_streams(tap, _COLUMNS).streams
    assert streams == {"users": {"read": "full_refresh"}, "public-a": {}, "public-b": {}}
