"""The places where Delta tables may lie, and whose tables they may be."""

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.storage import is_local

NOT_BY_COLUMN_ID = "its columns have no ids that files could carry (delta.columnMapping.mode is not id): others made it"


def check_is_local(warehouse: str) -> None:
    """Raises ConfigError for a warehouse in an object store.

    On S3 Delta first looks whether a version exists and then writes it, under a lock of its own process only: so two
    processes can write the same version. Other object stores were not tried.
    """
    if not is_local(warehouse):
        raise ConfigError(
            "opening Delta tables",
            f"{warehouse} is no local folder: in an object store two processes that commit the same version of a Delta "
            "table would both believe that it is theirs, and the rows of one would be lost",
            remedy="Set catalog: {format: iceberg} in the settings with a catalog of type jdbc or rest, whose tables "
            "may lie in object stores, or keep the warehouse on a local disk.",
        )
