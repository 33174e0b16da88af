"""Real connectors of both protocols, certified: what they hold, and what is known of their faults."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dagster_airbyte_proto.certification.certificate import Certificate, certify
from dagster_airbyte_proto.certification.rule import Outcome
from dagster_airbyte_proto.certification.watching.watched_program import Bounds, Gathering, Scratch
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.launchers.packages.environments import PinnedPackage, ensure_environment
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from tests.support.low_code import FIRST_REFRESH_TOKEN, MANIFEST, SECRET, running_api
from tests.support.postgres import PostgresServer

pytestmark = [pytest.mark.nightly, pytest.mark.connectors, pytest.mark.timeout(900)]

_PASSWORD = "hunter22-of-the-certificates"
_RESUMING = ("state_resumes", "last_state_resumes", "cancel_resumes")


@pytest.fixture
def engine(tmp_path: Path, connector_environments: Path) -> Iterator[Engine]:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "venvs").symlink_to(connector_environments)
    with Engine(Settings.load(tmp_path / "home", None)) as engine:
        yield engine


def certificate(
    engine: Engine, protocol: str, launch: Mapping[str, Any], config: Mapping[str, Any], **written: Any
) -> Certificate:
    document = {"name": "shop", "connector": {"protocol": protocol, "launch": launch}, "config": config, **written}
    return certify(engine, Connection.model_validate(document), Gathering(Bounds(query_seconds=300.0)))


def outcomes(found: Certificate) -> dict[str, Outcome]:
    """The outcomes of its rules. Whatever they are, the certificate is whole."""
    assert found.measures is not None and found.measures.peak_memory_bytes
    assert found.measures.peak_memory_bytes > 10 << 20
    assert not {"spec_answered", "check_succeeds", "discover_answered", "read_ends"} & _with(found, Outcome.CANNOT_TELL)
    return {each.rule.name: each.ruling.outcome for each in found.rules}


def _with(found: Certificate, outcome: Outcome) -> set[str]:
    return {each.rule.name for each in found.rules if each.ruling.outcome is outcome}


def met(found: Certificate, rule: str) -> str:
    return next(each.ruling.met for each in found.rules if each.rule.name == rule)


def test_the_faker_loses_users_when_it_is_resumed(engine: Engine) -> None:
    launch = {"kind": "pypi", "package": "airbyte-source-faker==7.2.1", "executable": "source-faker"}
    config = {"count": 2000, "seed": 1, "parallelism": 1, "records_per_slice": 100, "always_updated": False}
    found = certificate(engine, "airbyte", launch, config)
    assert outcomes(found)["read_types"] is Outcome.HOLDS
    assert _with(found, Outcome.BROKEN) == {"state_resumes", "cancel_resumes"}
    assert "100 records are lost, 0 come again" in met(found, "state_resumes")


def test_hardcoded_records_keep_every_rule(engine: Engine) -> None:
    launch = {
        "kind": "pypi",
        "package": "airbyte-source-hardcoded-records==0.0.48",
        "executable": "source-hardcoded-records",
    }
    found = certificate(engine, "airbyte", launch, {"count": 300})
    assert outcomes(found)["check_refuses"] is Outcome.HOLDS
    assert _with(found, Outcome.BROKEN) == set()
    assert set(_RESUMING) <= _with(found, Outcome.DOES_NOT_APPLY)


def test_a_low_code_connector_keeps_its_rotated_token(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "low code.yaml").write_text(MANIFEST)
    launch = {"kind": "manifest", "path": str(tmp_path / "low code.yaml")}
    with running_api() as api:
        api.rows["/users"] = [{"id": n, "class_name": f"{n}b", "changed_on": f"2026-02-{n:02}"} for n in range(1, 20)]
        api.rows["/cities"] = [{"name": name} for name in ("Ulm", "Bern", "Linz")]
        found = certificate(engine, "airbyte", launch, api.config)
        kept = engine.store.stored_config("shop")
        assert kept is not None and kept.config["credentials"]["refresh_token"] == api.refresh_token
    assert api.refresh_token != FIRST_REFRESH_TOKEN
    assert SECRET not in str(found)
    assert outcomes(found)["last_state_resumes"] is Outcome.HOLDS
    assert _with(found, Outcome.BROKEN) | _with(found, Outcome.WARNING) == set()


def test_lines_of_json_by_a_tap_of_the_sdk(engine: Engine, tmp_path: Path) -> None:
    rows = ({"id": n, "name": f"n {n}", "at": "2024-02-29T12:00:00Z"} for n in range(500))
    (tmp_path / "people.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {"path": str(tmp_path / "people.jsonl"), "stream_name": "people", "primary_keys": ["id"]}
    found = certificate(engine, "singer", {"kind": "pypi", "package": "tap-jsonl==0.3.1"}, config)
    assert outcomes(found)["last_state_resumes"] is Outcome.HOLDS
    assert _with(found, Outcome.BROKEN) == set()
    # It has one state, at its end.
    assert "no state has records before it and after it" in met(found, "state_resumes")


def test_a_database_by_a_tap_of_singer_python(engine: Engine, postgres_server: PostgresServer) -> None:
    with psycopg.connect(postgres_server.conninfo(), autocommit=True) as connection:
        connection.execute("CREATE SCHEMA certified")
        connection.execute("CREATE TABLE certified.users (id int PRIMARY KEY, name text)")
        connection.execute("INSERT INTO certified.users SELECT n, 'user ' || n FROM generate_series(1, 25000) n")
        # The tap's catalog has the number of rows as the server knows it, which changes when the server analyzes.
        connection.execute("VACUUM ANALYZE certified.users")
    config = {
        "host": "127.0.0.1", "port": postgres_server.port, "user": "tester", "dbname": "postgres",
        "password": _PASSWORD, "filter_schemas": "certified",
    }  # fmt: skip
    launch = {"kind": "pypi", "package": "pipelinewise-tap-postgres==2.1.0"}
    streams = {"certified-users": {"read": "incremental", "cursor": "id"}}
    found = certificate(engine, "singer", launch, config, streams=streams)
    found_outcomes = outcomes(found)
    assert {found_outcomes[rule] for rule in _RESUMING} == {Outcome.HOLDS}
    assert found_outcomes["secrets_not_written"] is Outcome.HOLDS
    assert _with(found, Outcome.BROKEN) == set()


def _destination_certificate(
    engine: Engine, protocol: str, launch: Mapping[str, Any], config: Mapping[str, Any]
) -> Certificate:
    push = {"contacts": {"from": "shop.people", "key": ["id"]}}
    document = {"name": "crm", "connector": {"protocol": protocol, "launch": launch}, "config": config, "push": push}
    bounds = Bounds(query_seconds=300.0, write_seconds=300.0)
    return certify(engine, Connection.model_validate(document), Gathering(bounds, scratch=Scratch(rows=5000)))


def test_a_target_of_json_lines(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    launch = {"kind": "pypi", "package": "target-jsonl==0.1.4", "executable": "target-jsonl"}
    found = _destination_certificate(engine, "singer", launch, {"destination_path": str(tmp_path / "out")})
    assert {each.name.partition("-2")[0] for each in (tmp_path / "out").iterdir()} >= {"airbyte_proto_certify"}
    assert _with(found, Outcome.BROKEN) == set()
    assert "1 of 5 states came back, all after the end of the input" in met(found, "states_come_back")
    assert "is not of type" in met(found, "misfit_is_loud")


def test_a_destination_on_the_cdk_of_airbyte(engine: Engine, tmp_path: Path, connector_environments: Path) -> None:
    environment = ensure_environment(PinnedPackage.of("airbyte-cdk==7.39.1"), cache=connector_environments, python=None)
    program = Path(__file__).parents[1] / "support" / "sqlite_destination.py"
    launch = {"kind": "local", "command": [str(environment / "bin" / "python"), str(program)]}
    found = _destination_certificate(engine, "airbyte", launch, {"path": str(tmp_path / "out.sqlite")})
    assert _with(found, Outcome.BROKEN) == set()
    assert "all 5 states came back, while the input was open" in met(found, "states_come_back")
    assert "acknowledged all 5 rows" in met(found, "misfit_is_loud")
