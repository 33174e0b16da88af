"""Plain Parquet tables in a local folder, for any reader. They need no JVM."""

from dagster_airbyte_proto.model import WriteMode
from dagster_airbyte_proto.tables.abilities import Abilities

ABILITIES = Abilities(
    "parquet",
    frozenset((WriteMode.APPEND, WriteMode.OVERWRITE)),
    has_slices=False,
    has_renames=False,
    has_new_columns_with_rows=True,
    is_local=True,
    needs_hard_links=True,
    uses_session_catalog=True,
)
