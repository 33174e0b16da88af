"""A low-code manifest of ours, run by the real airbyte-cdk, against an API on this machine and into folder tables."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest
from dagster_airbyte_proto.sync.report import SyncReport
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.testing.folder import FOLDER_FORMAT
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.support.low_code import MANIFEST, SECRET, Api, running_api

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(900)]


class Synced(NamedTuple):
    """Two syncs; between them one user was added, and `first` is what had been asked until then."""

    home: Path
    api: Api
    first: int
    reports: list[SyncReport]
    kept: dict[str, Any]

    def rows(self, stream: str) -> list[dict[str, Any]]:
        return list(FolderTables(self.home / "warehouse").rows(TableName("shop", stream)).to_pylist())


def _sync(folder: Path) -> tuple[SyncReport, dict[str, Any]]:
    with Engine(Settings.load(folder / "home", folder / "settings.yaml")) as engine:
        report = sync_connection(engine, Connection.from_file(folder / "shop.yaml"), SyncRequest(), None)
        kept = engine.store.stored_config("shop")
    return report, dict(kept.config) if kept else {}


def _connect(folder: Path, config: dict[str, Any]) -> None:
    connector = {"protocol": "airbyte", "launch": {"kind": "manifest", "path": "low code.yaml"}}
    (folder / "shop.yaml").write_text(yaml.safe_dump({"connector": connector, "config": config}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, connector_environments: Path) -> Path:
    folder = tmp_path_factory.mktemp("manifest")
    (folder / "low code.yaml").write_text(MANIFEST)
    (folder / "settings.yaml").write_text(f"catalog: {{format: {FOLDER_FORMAT}}}\n")
    (folder / "home").mkdir()
    (folder / "home" / "venvs").symlink_to(connector_environments)
    return folder


@pytest.fixture(scope="module")
def synced(folder: Path) -> Iterator[Synced]:
    with running_api() as api:
        _connect(folder, api.config)
        api.rows["/users"] = [{"id": n, "class_name": f"{n}b", "changed_on": f"2026-02-{n:02}"} for n in range(1, 6)]
        api.rows["/cities"] = [{"name": name} for name in ("Ulm", "Bern", "Linz")]
        api.busy = 1
        full, kept = _sync(folder)
        first = len(api.asked)
        api.rows["/users"].append({"id": 6, "class_name": "6b", "changed_on": "2026-02-07"})
        incremental, _ = _sync(folder)
        yield Synced(folder / "home", api, first, [full, incremental], kept)


def test_every_page_of_every_stream_lands_once(synced: Synced) -> None:
    assert sorted((row["id"], row["class_name"]) for row in synced.rows("users")) == [(n, f"{n}b") for n in range(1, 7)]
    assert sorted(row["name"] for row in synced.rows("cities")) == ["Bern", "Linz", "Ulm"]
    assert [report.streams["users"].committed for report in synced.reports] == [5, 2]
    assert synced.api.statuses("/users")[1:4] == [200, 200, 200]


def test_the_second_sync_asks_from_where_the_first_one_ended(synced: Synced) -> None:
    asked = [told["since"] for path, told, _ in synced.api.asked[synced.first :] if path == "/users"]
    assert asked == ["2026-02-05"]
    assert synced.reports[1].streams["users"].state == {"changed_on": "2026-02-07"}


def test_a_rate_limit_is_waited_for(synced: Synced) -> None:
    assert synced.api.statuses("/users")[0] == 429
    assert all(report.status.value == "complete" for report in synced.reports)


def test_a_rotated_token_is_kept_and_found_by_the_next_sync(synced: Synced) -> None:
    credentials = synced.kept["credentials"]
    assert (credentials["access_token"], credentials["refresh_token"]) == ("access-token-1", "refresh-token-1")
    assert synced.api.statuses("/token") == [200]
    assert 401 not in synced.api.statuses("/users") + synced.api.statuses("/cities")


def test_the_manifest_stays_out_of_the_kept_config_the_logs_and_the_reports(synced: Synced) -> None:
    assert sorted(synced.kept) == ["client_id", "client_secret", "credentials", "url"]
    logs = [path.read_text() for path in (synced.home / "logs").rglob("*.log")]
    assert len(logs) == 2
    for text in (*logs, *(json.dumps(report.as_json()) for report in synced.reports)):
        assert not any(word in text for word in ("__injected", "OAuthAuthenticator", SECRET, "refresh-token"))


def test_a_config_is_held_against_the_manifest_before_anything_is_installed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "low code.yaml").write_text(MANIFEST)
    (tmp_path / "settings.yaml").write_text(f"catalog: {{format: {FOLDER_FORMAT}}}\n")
    _connect(tmp_path, {"url": 1, "client": "x", "client_id": "x", "client_secret": "y", "credentials": {}})
    with pytest.raises(ConfigError) as refused:
        _sync(tmp_path)
    assert "url: must be text; found a whole number" in str(refused.value)
    assert 'client: is not a known key; did you mean "client_id"?' in str(refused.value)
    assert not (tmp_path / "home" / "venvs").exists()
