"""Folder tables, for tests: they need no JVM and have every write mode, but only this library reads them."""

from dagster_airbyte_proto.model import TRANSFORMS
from dagster_airbyte_proto.tables.abilities import Abilities

FOLDER_FORMAT = "dagster_airbyte_proto.testing.folder.format:FOLDER"
"""The format of the catalog in the settings of a test."""

ABILITIES = Abilities(
    "folder",
    transforms=TRANSFORMS,
    has_new_columns_with_rows=True,
    is_local=True,
    needs_hard_links=True,
    import_path=FOLDER_FORMAT,
)
