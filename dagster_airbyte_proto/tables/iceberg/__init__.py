"""Iceberg tables, in any catalog and warehouse that Spark's Iceberg takes."""

from dagster_airbyte_proto.model import TRANSFORMS
from dagster_airbyte_proto.tables.abilities import Abilities

ABILITIES = Abilities(
    "iceberg",
    transforms=TRANSFORMS,
    has_copy_on_write=True,
    has_clustering=True,
    has_new_columns_with_rows=True,
)
