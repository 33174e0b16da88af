"""A format is found in one place, and no Spark is imported where none is needed."""

import subprocess
import sys
from pathlib import Path

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.tables.formats import FORMAT_NAMES, find_format
from dagster_airbyte_proto.testing.folder import FOLDER_FORMAT

_NO_SPARK = "import sys; assert not {'pyspark', 'py4j'} & sys.modules.keys()"


def _run(program: str, *words: str) -> None:
    subprocess.run([sys.executable, "-c", program, *words], check=True, stdout=subprocess.DEVNULL)


def test_each_format_has_the_name_by_which_it_is_found() -> None:
    assert tuple(find_format(name).abilities.format for name in FORMAT_NAMES) == FORMAT_NAMES


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("orc", "'orc' is not known; use iceberg, delta, parquet"),
        ("folder", "'folder' is not known; use iceberg, delta, parquet"),
        ("a b:FORMAT", "'a b:FORMAT' is not known"),
        ("no_such_module:FORMAT", "no_such_module:FORMAT cannot be imported: No module named 'no_such_module'"),
        ("dagster_airbyte_proto.model:FORMAT", "the module dagster_airbyte_proto.model has no FORMAT"),
        ("dagster_airbyte_proto.model:TRANSFORMS", "TRANSFORMS is a frozenset, and not a Format"),
        ("dagster_airbyte_proto.tables.parquet.format:ParquetFormat", "the class ParquetFormat, and not a Format"),
    ],
)
def test_a_format_that_is_not_found_is_a_config_error(name: str, found: str) -> None:
    with pytest.raises(ConfigError, match=found) as refused:
        find_format(name)
    assert f"module:NAME. That of folder tables, which need no JVM, is {FOLDER_FORMAT}." in refused.value.remedy


@pytest.mark.parametrize(("name", "called"), [("parquet", "parquet"), (FOLDER_FORMAT, "folder")])
def test_tables_without_a_jvm_are_opened_without_spark(name: str, called: str, tmp_path: Path) -> None:
    program = f"""
from dagster_airbyte_proto.settings import CatalogSettings, Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.tables.formats import care_of
from pathlib import Path
home = Path(sys.argv[1])
settings = Settings(home=home, catalog=CatalogSettings(format={name!r}).with_defaults(home))
with Engine(settings) as engine:
    assert engine.tables.abilities.format == {called!r}
    assert engine.tables_place.startswith({called!r})
    assert not care_of(engine.tables).names()
"""
    _run(f"import sys{program}{_NO_SPARK}", str(tmp_path))


def test_the_abilities_of_all_formats_are_known_without_spark() -> None:
    _run(f"from dagster_airbyte_proto.tables.formats import formats; list(formats()); {_NO_SPARK}")


def test_the_command_line_helps_without_spark() -> None:
    program = f"""
from dagster_airbyte_proto.cli.main import main
assert main(["--help"]) == 0
{_NO_SPARK}
"""
    _run(program)


def test_the_names_of_delta_tables_are_known_without_spark() -> None:
    program = """
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.formats import find_format
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
settings = SparkSettings(catalog="lake", warehouse="/tmp/w")
assert find_format("delta").sql_name(settings, TableName("shop", "users")) == "lake.shop.users"
"""
    _run(f"import sys{program}{_NO_SPARK}")


def test_two_threads_may_come_to_spark_at_once() -> None:
    """As the start of a session in the background and the sync that goes on meanwhile."""
    _run("""
import sys, threading, time
from concurrent.futures import Future
from importlib import import_module

background = Future()

def come() -> None:
    try:
        background.set_result(import_module("dagster_airbyte_proto.tables.spark.session"))
    except BaseException as error:
        background.set_exception(error)

threading.Thread(target=come).start()
while "pyspark" not in sys.modules and not background.done():
    time.sleep(0.0001)
import_module("dagster_airbyte_proto.tables.iceberg.layout")
background.result(60)
""")
