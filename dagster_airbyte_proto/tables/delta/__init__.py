"""Delta tables in a local folder."""

from dagster_airbyte_proto.model import IDENTITY
from dagster_airbyte_proto.tables.abilities import Abilities

ABILITIES = Abilities(
    "delta",
    transforms=frozenset((IDENTITY,)),
    has_new_columns_with_rows=True,
    is_local=True,
    uses_session_catalog=True,
)
