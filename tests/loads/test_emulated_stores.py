"""Files in stores like Google's and Azure's, by the settings of a catalog and by credentials that it vends."""

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from dagster_airbyte_proto.errors import StagingError
from dagster_airbyte_proto.loads.object_stores.known import catalog_settings
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.staging.files.staging_folder import (
    StagingFolder,
    create_folder,
    raising_staging_error,
    remove_orphan_files,
)
from tests.support.object_stores.azure import AzureStore, running_azure_store
from tests.support.object_stores.google import running_google_store

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1200)]

_HOUR = timedelta(hours=1)


@pytest.fixture(scope="module", params=[running_google_store, running_azure_store])
def store(request: pytest.FixtureRequest, connector_environments: Path) -> Iterator[Any]:
    with request.param(connector_environments) as running:
        yield running


@pytest.fixture(scope="module")
def azure(connector_environments: Path) -> Iterator[AzureStore]:
    with running_azure_store(connector_environments) as running:
        yield running


def _write(storage: Storage, location: str) -> None:
    filesystem, path = storage.at(location)
    with filesystem.open_output_stream(path) as stream:
        stream.write(b"x" * 1000)


def _files(storage: Storage, location: str) -> list[str]:
    filesystem, path = storage.at(location)
    found = filesystem.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
    return sorted(info.path.removeprefix(f"{path}/") for info in found if info.is_file)


def test_what_a_dead_run_has_left_is_removed_and_what_is_committed_stays(store: Any) -> None:
    storage, table = Storage(store.settings), f"{store.location}/ware house/50%20/my orders"
    folder = f"{table}/data/run-r1-1"
    create_folder(StagingFolder.at(folder, storage))
    assert remove_orphan_files(folder, [], storage) == 0
    for name in ("kept.parquet", "orphan.parquet", "é#1?a=b.parquet"):
        _write(storage, f"{folder}/{name}")
    _write(storage, f"{table}/data/run-r2-1/other.parquet")

    assert remove_orphan_files(folder, [f"{folder}/kept.parquet"], storage) == 2
    assert _files(storage, f"{table}/data") == ["run-r1-1/kept.parquet", "run-r2-1/other.parquet"]
    assert remove_orphan_files(folder, [], storage) == 1
    assert remove_orphan_files(folder, [], storage) == 0
    assert _files(storage, table) == ["data/run-r2-1/other.parquet"]
    filesystem, path = storage.at(f"{folder}/kept.parquet")
    assert filesystem.get_file_info(path).type is fs.FileType.NotFound
    with pytest.raises(FileNotFoundError):
        filesystem.open_input_file(path)


class _Vendor:
    """A catalog that vends what it is told to."""

    def __init__(self, vend: Callable[[], Mapping[str, str]]) -> None:
        self.vend = vend

    def settings_at(self, _: str) -> Mapping[str, str]:
        return catalog_settings(self.vend().items())


def test_azures_keys_are_read_where_hadoop_has_them(azure: AzureStore) -> None:
    location = f"{azure.location}/by key/a"
    _write(Storage(azure.hadoop_settings), location)
    assert _files(Storage(azure.settings), f"{azure.location}/by key") == ["a"]


def test_tokens_that_azure_lets_expire_are_renewed_between_files(azure: AzureStore) -> None:
    vendor = _Vendor(lambda: azure.vended(timedelta(seconds=-1)))
    storage = Storage({**azure.address, "adls.auth.shared-key.account.key": "d3Jvbmc="}, vendor)
    with pytest.raises(StagingError, match=r"403") as refused, raising_staging_error("write", azure.location):
        _write(storage, f"{azure.location}/vended/a")
    assert "sig=" not in str(refused.value).replace("sig=***", "")
    vendor.vend = lambda: azure.vended(_HOUR)
    _write(storage, f"{azure.location}/vended/a")
    assert _files(storage, f"{azure.location}/vended") == ["a"]


def test_a_token_that_may_only_read_stops_the_load_and_is_not_told(azure: AzureStore) -> None:
    storage = Storage(azure.address, _Vendor(lambda: azure.vended(_HOUR, "rl")))
    with pytest.raises(StagingError, match=r"403") as refused, raising_staging_error("write", azure.location):
        _write(storage, f"{azure.location}/read only/a")
    assert "sig=***&" in str(refused.value)
    assert _files(storage, f"{azure.location}/read only") == []
