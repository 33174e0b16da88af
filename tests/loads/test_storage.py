"""The path of a location in its store. Nothing is connected to."""

import pytest

from dagster_airbyte_proto.loads.storage import Storage


@pytest.mark.parametrize("place", ["gs://lake", "abfss://lake@acme.dfs.core.windows.net", "s3://lake"])
def test_the_path_of_a_location_is_taken_as_it_is(place: str) -> None:
    """Iceberg writes it so: the folder of a table has the name of its stream."""
    below = "ware house/my orders/50%20/é#1?a=b.parquet"
    _, path = Storage().at(f"{place}/{below}")
    assert path == f"lake/{below}"
