"""The path of a location in its store, and the settings with which the store is opened. Nothing is connected to."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

from dagster_airbyte_proto.errors import StagingError
from dagster_airbyte_proto.loads.object_stores.known import catalog_settings, is_in_object_store, spark_settings
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.staging.files.staging_folder import StagingFolder

_ADLS = "abfss://lake@acme.dfs.core.windows.net"
_ADDRESSES = {"dfs": ".dfs.core.windows.net", "blob": ".blob.core.windows.net"}


@pytest.mark.parametrize("place", ["gs://lake", _ADLS, "s3://lake"])
def test_the_path_of_a_location_is_taken_as_it_is(place: str) -> None:
    """Iceberg writes it so: the folder of a table has the name of its stream."""
    below = "ware house/my orders/50%20/é#1?a=b.parquet"
    _, path = Storage().at(f"{place}/{below}")
    assert path == f"lake/{below}"


@pytest.mark.parametrize("location", ["abfss://acme.dfs.core.windows.net/lake", "abfss://lake@/a", "abfss://@acme/a"])
def test_a_location_in_azure_names_its_container_and_account(location: str) -> None:
    with pytest.raises(ValueError, match="names no container and account"):
        Storage().at(location)
    with pytest.raises(StagingError, match="names no container and account"):
        StagingFolder.at(location)


@pytest.mark.parametrize("scheme", ["s3", "s3a", "gs", "abfs", "abfss", "wasbs"])
def test_object_stores_have_no_folders(scheme: str) -> None:
    assert is_in_object_store(f"{scheme}://lake@acme/a")
    assert not is_in_object_store("/lake/a")
    assert not is_in_object_store("hdfs://lake/a")


def _azure(
    monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, str], location: str = f"{_ADLS}/a"
) -> dict[str, Any]:
    """The arguments with which pyarrow opens an account."""
    opened: dict[str, Any] = {}

    def opening(account: str, **given: Any) -> fs.FileSystem:
        opened.update(given, account=account)
        return fs.LocalFileSystem()

    monkeypatch.setattr(fs, "AzureFileSystem", opening)
    Storage(settings).at(location)
    return opened


def _at(authorities: Mapping[str, str], scheme: str = "https") -> dict[str, str]:
    return {f"{name}_storage_authority": value for name, value in authorities.items()} | {
        f"{name}_storage_scheme": scheme for name in authorities
    }


@pytest.mark.parametrize(
    ("settings", "account_key", "sas_token"),
    [
        ({}, None, None),
        ({"adls.auth.shared-key.account.name": "acme", "adls.auth.shared-key.account.key": "k"}, "k", None),
        ({"adls.auth.shared-key.account.name": "other", "adls.auth.shared-key.account.key": "k"}, None, None),
        ({"fs.azure.account.key.acme.dfs.core.windows.net": "h"}, "h", None),
        ({"adls.sas-token.acme.dfs.core.windows.net": "t", "fs.azure.account.key.acme": "h"}, None, "?t"),
        ({"adls.sas-token.acme": "?t", "adls.sas-token.other": "o"}, None, "?t"),
    ],
)
def test_an_account_is_opened_with_its_own_key_or_token(
    monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, str], account_key: str | None, sas_token: str | None
) -> None:
    opened = _azure(monkeypatch, settings)
    expected = {"account": "acme", "account_key": account_key, "sas_token": sas_token}
    assert opened == {**expected, **_at(_ADDRESSES)}


@pytest.mark.parametrize(
    ("endpoint", "addresses", "scheme"),
    [
        ("https://acme.dfs.core.windows.net", _ADDRESSES, "https"),
        ("acme.dfs.core.windows.net", _ADDRESSES, "https"),
        ("http://127.0.0.1:10000/acme", dict.fromkeys(_ADDRESSES, "127.0.0.1:10000"), "http"),
    ],
)
def test_an_account_may_have_an_address_of_its_own(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, addresses: Mapping[str, str], scheme: str
) -> None:
    settings = {"adls.connection-string.acme.dfs.core.windows.net": endpoint}
    opened = _azure(monkeypatch, settings)
    assert {name: value for name, value in opened.items() if "_storage_" in name} == _at(addresses, scheme)


def test_an_account_of_another_cloud_is_at_that_clouds_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = _azure(monkeypatch, {}, "abfss://lake@acme.dfs.core.chinacloudapi.cn/a")
    assert opened["blob_storage_authority"] == ".blob.core.chinacloudapi.cn"


@pytest.mark.parametrize(
    ("settings", "is_anonymous", "token"),
    [
        ({}, False, None),
        ({"gcs.no-auth": "true"}, True, None),
        ({"gcs.no-auth": "true", "gcs.oauth2.token": "t"}, False, "t"),
    ],
)
def test_google_is_asked_with_a_token_by_nobody_or_by_who_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, str], is_anonymous: bool, token: str | None
) -> None:
    opened: dict[str, Any] = {}

    def opening(**given: Any) -> fs.FileSystem:
        opened.update(given)
        return fs.LocalFileSystem()

    monkeypatch.setattr(fs, "GcsFileSystem", opening)
    Storage({**settings, "gcs.service.host": "http://127.0.0.1:4443/"}).at("gs://lake/a")
    assert (opened["anonymous"], opened["access_token"]) == (is_anonymous, token)
    assert (opened["credential_token_expiration"] is None) is (token is None)
    assert (opened["scheme"], opened["endpoint_override"]) == ("http", "127.0.0.1:4443")


def test_a_request_to_s3_is_tried_for_longer_than_pyarrow_does_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: dict[str, Any] = {}

    def opening(**given: Any) -> fs.FileSystem:
        opened.update(given)
        return fs.LocalFileSystem()

    monkeypatch.setattr(fs, "S3FileSystem", opening)
    Storage().at("s3://lake/a")
    assert isinstance(opened["retry_strategy"], fs.AwsStandardS3RetryStrategy)
    assert opened["retry_strategy"].max_attempts == 6


def test_of_a_session_the_settings_of_stores_alone_are_read() -> None:
    config = {
        "spark.sql.catalog.lake.credential": "id:secret",
        "spark.sql.catalog.lake.adls.sas-token.acme": "t",
        "spark.sql.catalog.other.adls.sas-token.acme": "u",
        "spark.sql.catalog.lake.gcs.oauth2.token": "g",
        "spark.sql.catalog.lake.s3.endpoint": "",
        "spark.hadoop.fs.azure.account.key.acme.dfs.core.windows.net": "k",
        "spark.hadoop.fs.azure.other": "o",
        "fs.s3a.access.key": "not Hadoop's here",
    }
    assert spark_settings(config, "lake") == {
        "adls.sas-token.acme": "t",
        "gcs.oauth2.token": "g",
        "fs.azure.account.key.acme.dfs.core.windows.net": "k",
    }


def test_vended_credentials_replace_all_of_ours_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Mapping[str, Any]] = []

    class Vendor:
        def settings_at(self, _: str) -> Mapping[str, str]:
            return catalog_settings(
                {"adls.sas-token.acme.dfs.core.windows.net": "vended", "token": "catalog's"}.items()
            )

    def opening(account: str, **given: Any) -> fs.FileSystem:
        opened.append({**given, "account": account})
        return fs.LocalFileSystem()

    monkeypatch.setattr(fs, "AzureFileSystem", opening)
    ours = {"adls.auth.shared-key.account.key": "k", "adls.sas-token.acme": "ours"}
    filesystem, path = Storage(ours, Vendor()).at(f"{_ADLS}/a")
    with pytest.raises((OSError, pa.ArrowException)):
        filesystem.open_input_stream(f"/nowhere/{path}")
    [given] = opened
    assert (given["account"], given["account_key"], given["sas_token"]) == ("acme", None, "?vended")
