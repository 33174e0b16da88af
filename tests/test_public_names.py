"""What `from dagster_airbyte_proto import …` gives, and what it costs."""

import subprocess
import sys
from pathlib import Path

import pytest

import dagster_airbyte_proto
from dagster_airbyte_proto import Connection, sync


@pytest.mark.parametrize("name", dagster_airbyte_proto.__all__)
def test_every_public_name_is_there_and_has_a_docstring(name: str) -> None:
    assert getattr(dagster_airbyte_proto, name).__doc__


def test_a_name_that_is_not_public_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        dagster_airbyte_proto.Nothing  # noqa: B018 - to ask is the test


def test_all_names_are_told() -> None:
    assert set(dir(dagster_airbyte_proto)) == set(dagster_airbyte_proto.__all__)


def test_sync_is_called_although_its_folder_bears_its_name() -> None:
    nowhere = {"protocol": "singer", "launch": {"kind": "local", "command": ["x"]}}
    shop = Connection.model_validate({"name": "shop", "connector": nowhere})

    with pytest.raises(dagster_airbyte_proto.ConfigError, match="there is no such file"):
        sync(shop, settings=Path("/nowhere/settings.yaml"))


def _modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    found = subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, capture_output=True, text=True)
    return set(found.stdout.split())


def test_a_name_of_the_engine_costs_no_import_of_dagster() -> None:
    assert not {"dagster", "pyspark"} & _modules_after(
        "from dagster_airbyte_proto import Connection, ConfigError, sync"
    )


def test_no_public_name_costs_an_import_of_spark() -> None:
    """`dg` asks for all of them whenever it lists components. The Spark resource of Dagster, on which ours builds,
    imports pyspark itself."""
    names = "[name for name in a.__all__ if name != 'SparkSessionResource']"
    loaded = _modules_after(f"import dagster_airbyte_proto as a\n[getattr(a, name) for name in {names}]")

    assert "dagster" in loaded
    assert "pyspark" not in loaded


def test_on_windows_the_import_says_where_it_runs() -> None:
    script = "import sys\nsys.platform = 'win32'\nimport dagster_airbyte_proto"
    ended = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)

    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        "ImportError: dagster_airbyte_proto does not run on Windows itself. Use it in WSL 2."
    )
