"""What a catalog vends reaches the tasks through their driver."""

from collections.abc import Mapping

import pytest

from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.loads.vended import CredentialSource
from dagster_airbyte_proto.sync.cluster.credentials import DriverCredentials, ServedCredentials
from tests.sync.cluster.conftest import Serving


class _Catalog:
    """Vends other credentials each time, or refuses."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.refusal = ""

    def settings_at(self, location: str) -> Mapping[str, str]:
        self.asked.append(location)
        if self.refusal:
            raise OSError(self.refusal)
        return {"s3.access-key-id": f"key {len(self.asked)}", "client.region": "eu-central-1"}


@pytest.fixture
def catalog() -> _Catalog:
    return _Catalog()


@pytest.fixture
def credentials(serving: Serving, catalog: _Catalog) -> DriverCredentials:
    served = ServedCredentials(Storage({}, catalog))
    return DriverCredentials(serving.stub(served, CredentialSource))


def test_a_task_asks_anew_for_each_file(credentials: DriverCredentials, catalog: _Catalog) -> None:
    files = [f"s3://bucket/shop/users/data/{number}.parquet" for number in (1, 2)]
    assert [credentials.settings_at(file)["s3.access-key-id"] for file in files] == ["key 1", "key 2"]
    assert catalog.asked == files


def test_a_catalog_that_refuses_is_an_error_of_the_file(credentials: DriverCredentials, catalog: _Catalog) -> None:
    catalog.refusal = "renewing the credentials of table shop.users: the server is down"
    filesystem, path = Storage({}, credentials).at("s3://bucket/shop/users/data/1.parquet")
    with pytest.raises(OSError, match=r"table shop\.users: the server is down"):
        filesystem.open_output_stream(path)


def test_a_driver_that_is_gone_is_an_error_of_the_file(serving: Serving, credentials: DriverCredentials) -> None:
    assert credentials.settings_at("s3://bucket/a")
    serving.channel.__exit__(None, None, None)
    with pytest.raises(OSError, match="does not answer"):
        credentials.settings_at("s3://bucket/a")
