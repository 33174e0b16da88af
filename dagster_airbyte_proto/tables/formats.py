"""The table formats, and the abilities of the tables of each format."""

from typing import NamedTuple

from dagster_airbyte_proto.loads.table import MODES
from dagster_airbyte_proto.model import WriteMode
from dagster_airbyte_proto.schema.partitioning import IDENTITY, TRANSFORMS


class Abilities(NamedTuple):
    """The abilities of a table format.

    `format` is its name in the settings. `transforms` are the partition transforms that it supports. With
    `has_new_columns_with_rows` a load that replaces all rows can also change the columns, in the same change.
    """

    format: str
    modes: frozenset[WriteMode] = MODES
    has_slices: bool = True
    has_renames: bool = True
    transforms: frozenset[str] = frozenset()
    has_copy_on_write: bool = False
    has_clustering: bool = False
    has_new_columns_with_rows: bool = False


ICEBERG = Abilities(
    "iceberg",
    transforms=TRANSFORMS,
    has_copy_on_write=True,
    has_clustering=True,
    has_new_columns_with_rows=True,
)
FOLDER = Abilities("folder", transforms=TRANSFORMS, has_new_columns_with_rows=True)
DELTA = Abilities("delta", transforms=frozenset((IDENTITY,)), has_new_columns_with_rows=True)
PARQUET = Abilities(
    "parquet",
    frozenset((WriteMode.APPEND, WriteMode.OVERWRITE)),
    has_slices=False,
    has_renames=False,
    has_new_columns_with_rows=True,
)
FORMATS = {each.format: each for each in (ICEBERG, DELTA, PARQUET, FOLDER)}
