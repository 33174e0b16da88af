"""The table formats: a folder of this package each, and one line of `_FORMATS`.

A format's module imports Spark's modules, and those of its own folder, inside functions: they take most of a second,
and a format is looked up where no table is touched.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.tables.abilities import Abilities

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dagster_airbyte_proto.tables.care import TableCare, TableRewinder
    from dagster_airbyte_proto.tables.spark.settings import SparkSettings
    from dagster_airbyte_proto.tables.writer import TableWriter

SESSION_CATALOG = "spark_catalog"
"""Spark's own name for its session catalog."""

_FORMATS = {
    "iceberg": "dagster_airbyte_proto.tables.iceberg.format:FORMAT",
    "delta": "dagster_airbyte_proto.tables.delta.format:FORMAT",
    "parquet": "dagster_airbyte_proto.tables.parquet.format:FORMAT",
    "folder": "dagster_airbyte_proto.tables.folder.format:FORMAT",
}
FORMAT_NAMES = tuple(_FORMATS)
"""The formats that users can name."""

Tables = TypeVar("Tables", bound="TableWriter")


class SparkPackage(NamedTuple):
    """A package of Maven Central. `{spark}` in the version stands for the minor version of Spark."""

    name: str
    version: str


class SparkParts(NamedTuple):
    """The parts of a Spark session that tables need: its settings, and packages without their `excluded` ones."""

    config: Mapping[str, str]
    packages: tuple[SparkPackage, ...] = ()
    excluded: tuple[str, ...] = ()


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


def find_format(name: str) -> Format[Any]:
    """Returns the format of this name. Raises ConfigError if there is none."""
    if name not in _FORMATS:
        raise ConfigError("looking up the table format", f"{name!r} is not known; use {', '.join(FORMAT_NAMES)}")
    module, _, attribute = _FORMATS[name].partition(":")
    found: Format[Any] = getattr(import_module(module), attribute)
    return found


def formats() -> Iterator[Format[Any]]:
    """The formats to choose from for a lake. Folder tables are for tests."""
    return (find_format(name) for name in FORMAT_NAMES if name != "folder")


def care_of(tables: "TableWriter") -> "TableCare":
    """Returns the care of a writer's tables."""
    return find_format(tables.abilities.format).care(tables)


def rewinder_of(tables: "TableWriter") -> "TableRewinder":
    """Returns the rewinder of a writer's tables. Raises ConfigError for tables that keep no snapshots."""
    return find_format(tables.abilities.format).rewinder(tables)


def no_rewinder() -> ConfigError:
    """Returns the error for tables that keep no snapshots."""
    return ConfigError(
        "taking tables back",
        "only Iceberg and Delta tables keep the snapshots that this needs",
        remedy="Roll back the state alone: the next run reads the rows after it again.",
    )
