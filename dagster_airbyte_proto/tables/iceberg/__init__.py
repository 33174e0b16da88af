"""Iceberg tables, in any catalog and warehouse that Spark's Iceberg takes."""

from dagster_airbyte_proto.model import TRANSFORMS, MergeMode
from dagster_airbyte_proto.tables.abilities import Abilities

ABILITIES = Abilities(
    "iceberg",
    transforms=TRANSFORMS,
    merges=frozenset(MergeMode),
    has_clustering=True,
    has_new_columns_with_rows=True,
)
