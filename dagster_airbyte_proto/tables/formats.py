"""The table formats: a folder of this package each, and one line of `_FORMATS`.

A format that is not of this package, or is for tests alone, is found by its import path: `module:NAME`.

A format's module imports Spark's modules, and those of its own folder, inside functions: they take most of a second,
and a format is looked up where no table is touched.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.abilities import Abilities
from dagster_airbyte_proto.tables.remote_sessions import needs_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dagster_airbyte_proto.tables.care import TableCare, TableRewinder
    from dagster_airbyte_proto.tables.newest_snapshot import SnapshotReader
    from dagster_airbyte_proto.tables.spark.settings import SparkSettings
    from dagster_airbyte_proto.tables.writer import FrameTables, TableWriter

SESSION_CATALOG = "spark_catalog"
"""Spark's own name for its session catalog."""

_FORMATS = {
    "iceberg": "dagster_airbyte_proto.tables.iceberg.format:FORMAT",
    "delta": "dagster_airbyte_proto.tables.delta.format:FORMAT",
    "parquet": "dagster_airbyte_proto.tables.parquet.format:FORMAT",
}
FORMAT_NAMES = tuple(_FORMATS)
"""The formats that users can name."""

LOAD_ID = "airbyte-proto.load-id"
"""The property of a snapshot or of a version that has the id of its load."""

FILES_ANSWER = "more than 0: it landed; 0: it did not, unless its files were compacted or its rows were replaced"

STATES_ALONE = (
    "Refresh the stream. Or roll back the state alone: the next run then reads the rows after it again, and a table"
    " without a key has them twice."
)
"""The remedy where a table cannot go back with its state."""

_IMPORT_PATH = re.compile(r"(?P<module>[A-Za-z_]\w*(\.\w+)*):(?P<name>\w+)")
_IMPORT_REMEDY = (
    "Tests can name a format by its import path, module:NAME. That of folder tables, which need no JVM, is "
    "dagster_airbyte_proto.testing.folder.format:FOLDER."
)

Tables = TypeVar("Tables", bound="TableWriter")


class SparkPackage(NamedTuple):
    """A package of Maven Central. `{spark}` in a version stands for the minor version of Spark.

    `versions_by_spark` has those of minor versions of Spark for which `version` was not published.
    """

    name: str
    version: str
    versions_by_spark: Mapping[str, str] = {}

    def coordinates(self, spark: str) -> str:
        """Returns the package's name and version for a minor version of Spark."""
        return self.name + self.versions_by_spark.get(spark, self.version).format(spark=spark)


class SparkParts(NamedTuple):
    """The parts of a Spark session that tables need: its settings, and packages without their `excluded` ones."""

    config: Mapping[str, str]
    packages: tuple[SparkPackage, ...] = ()
    excluded: tuple[str, ...] = ()


@runtime_checkable
class Format(Protocol[Tables]):
    """A table format: opens its tables, and gives their care, rewinds and SQL names."""

    @property
    def abilities(self) -> Abilities: ...

    def open_tables(
        self,
        settings: "SparkSettings",
        session: "Callable[[], SparkSession] | None" = None,
        labels: Mapping[str, str] | None = None,
    ) -> Tables:
        """Opens the tables of a warehouse. A `session` is called when it is needed; without one, a format that needs a
        session starts it now. The labels go into the tables' own logs with every commit."""
        ...

    def care(self, tables: Tables) -> "TableCare": ...

    def rewinder(self, tables: Tables) -> "TableRewinder":
        """Raises ConfigError for tables that keep no snapshots."""
        ...

    def spark_parts(self, settings: "SparkSettings") -> SparkParts:
        """Raises ConfigError for tables that Spark does not read."""
        ...

    def register(self, tables: Tables, session: "SparkSession") -> None:
        """Makes the tables known by name in the session's catalog, as they are now. To be called before each query."""
        ...


@runtime_checkable
class SupportsSnapshotReads(Protocol):
    """A format whose tables' newest snapshots can be read without a JVM."""

    def snapshot_reader(self, settings: "SparkSettings") -> "SnapshotReader | None":
        """Returns None where the catalog of these tables is one that only Spark can ask."""
        ...


@runtime_checkable
class SupportsSqlNames(Protocol):
    """A format that knows the names of its tables in SQL before they are open."""

    def sql_name(self, settings: "SparkSettings", name: TableName) -> str: ...


class LoadQuery(NamedTuple):
    """A statement in Spark's SQL, and what its answer says of a load."""

    sql: str
    answer: str


@runtime_checkable
class SupportsLoadQueries(SupportsSqlNames, Protocol):
    """A format whose tables tell by SQL which loads and which files they hold. `table` is its name in SQL."""

    def query_of_log(self, table: str, load_id: str) -> LoadQuery: ...

    def query_of_files(self, table: str, paths: Sequence[str]) -> LoadQuery: ...


@runtime_checkable
class SupportsFrames(Protocol):
    """A format to whose tables Spark writes frames."""

    def frames(self, tables: Any) -> "FrameTables": ...


@runtime_checkable
class SupportsConnect(Protocol):
    """A format whose `open_tables` takes a session of Spark Connect too."""

    @property
    def connect_abilities(self) -> Abilities:
        """The abilities of its tables on such a session."""
        ...


@runtime_checkable
class ChecksStaging(Protocol):
    """A format that some settings of a session keep from staging rows."""

    def check_staging(self, settings: "SparkSettings") -> None:
        """Raises ConfigError for what our own settings show. It starts nothing."""
        ...


def sql_name(found: Format[Any], settings: "SparkSettings", name: TableName) -> str:
    """Returns a table's name in SQL: that of its folder where the catalog of its format does not take its own, and its
    name alone where Spark does not read it."""
    return found.sql_name(settings, name) if isinstance(found, SupportsSqlNames) else str(name)


def abilities_on(found: Format[Any], settings: "SparkSettings") -> Abilities:
    """Returns the abilities of a format's tables on the session of these settings."""
    return found.connect_abilities if settings.is_remote and isinstance(found, SupportsConnect) else found.abilities


def check_works_on(found: Format[Any], settings: "SparkSettings") -> None:
    """Raises ConfigError for a session of Spark Connect where the format needs a JVM."""
    if settings.is_remote and not isinstance(found, SupportsConnect):
        raise needs_jvm("opening the tables", f"tables of the format {found.abilities.format}")


def check_staging_on(found: Format[Any], settings: "SparkSettings") -> None:
    """Raises ConfigError where the settings show that this process cannot stage rows for the tables."""
    if isinstance(found, ChecksStaging):
        found.check_staging(settings)


def find_format(name: str) -> Format[Any]:
    """Returns the format of this name, or at this import path. Raises ConfigError if there is none."""
    doing, path = "looking up the table format", _IMPORT_PATH.fullmatch(_FORMATS.get(name, name))
    if path is None:
        raise ConfigError(doing, f"{name!r} is not known; use {', '.join(FORMAT_NAMES)}", remedy=_IMPORT_REMEDY)
    try:
        found = getattr(import_module(path["module"]), path["name"], None)
    except ImportError as error:
        raise ConfigError(doing, f"{name} cannot be imported: {error}", remedy=_IMPORT_REMEDY) from error
    if found is None:
        raise ConfigError(doing, f"the module {path['module']} has no {path['name']}", remedy=_IMPORT_REMEDY)
    if isinstance(found, type) or not isinstance(found, Format):
        kind = f"the class {found.__name__}" if isinstance(found, type) else f"a {type(found).__name__}"
        raise ConfigError(doing, f"{name} is {kind}, and not a Format", remedy=_IMPORT_REMEDY)
    return found


def formats() -> Iterator[Format[Any]]:
    """The formats that users can name."""
    return map(find_format, FORMAT_NAMES)


def care_of(tables: "TableWriter") -> "TableCare":
    """Returns the care of a writer's tables."""
    return _format_of(tables).care(tables)


def rewinder_of(tables: "TableWriter") -> "TableRewinder":
    """Returns the rewinder of a writer's tables. Raises ConfigError for tables that keep no snapshots."""
    return _format_of(tables).rewinder(tables)


def frames_of(tables: "TableWriter") -> "FrameTables | None":
    """Returns a writer's tables as those that take frames; None where the format has no way to."""
    found = _format_of(tables)
    return found.frames(tables) if isinstance(found, SupportsFrames) else None


def register_tables(tables: "TableWriter", session: "SparkSession") -> None:
    """Makes a writer's tables known by name in a session's catalog, as they are now."""
    _format_of(tables).register(tables, session)


def no_rewinder() -> ConfigError:
    """Returns the error for tables that keep no snapshots."""
    return ConfigError(
        "taking tables back",
        "only Iceberg and Delta tables keep the snapshots that this needs",
        remedy=STATES_ALONE,
    )


def _format_of(tables: "TableWriter") -> Format[Any]:
    return find_format(tables.abilities.import_path or tables.abilities.format)
