"""Folder tables, which only this library reads. They need no JVM."""

from dagster_airbyte_proto.model import TRANSFORMS
from dagster_airbyte_proto.tables.abilities import Abilities

ABILITIES = Abilities("folder", transforms=TRANSFORMS, has_new_columns_with_rows=True, is_local=True)
