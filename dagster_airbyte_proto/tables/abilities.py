"""The abilities of tables of one format. Spark is not needed to know them."""

from typing import NamedTuple

from dagster_airbyte_proto.model import MergeMode, WriteMode

MODES = frozenset((WriteMode.APPEND, WriteMode.OVERWRITE, WriteMode.APPEND_DEDUP, WriteMode.OVERWRITE_DEDUP))
"""The write modes that tables support."""


class Abilities(NamedTuple):
    """The abilities of a table format.

    `format` is its name, which is also stored. A format that the settings do not know by its name has an `import_path`,
    `module:NAME`. `transforms` are the partition transforms that it supports. With
    `has_new_columns_with_rows` a load that replaces all rows can also change the columns, in the same change. With
    `is_local` its commits rely on the exclusive creation of a file, which only a file system guarantees. With
    `needs_hard_links` that is a hard link. With
    `uses_session_catalog` Spark knows its tables by its session catalog alone. With `is_remote` the session is one of
    Spark Connect, and there is no JVM.
    """

    format: str
    modes: frozenset[WriteMode] = MODES
    has_slices: bool = True
    has_renames: bool = True
    transforms: frozenset[str] = frozenset()
    merges: frozenset[MergeMode] = frozenset((MergeMode.ON_READ,))
    has_clustering: bool = False
    has_new_columns_with_rows: bool = False
    is_local: bool = False
    needs_hard_links: bool = False
    uses_session_catalog: bool = False
    import_path: str = ""
    is_remote: bool = False
