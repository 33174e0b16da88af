"""The report of any connector, by its connection file."""

import argparse
import sys
from pathlib import Path
from tempfile import mkdtemp

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.model import WriteMode
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.tables.abilities import MODES
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.session import start_session
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.fidelity.run import check, kept, text


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fidelity", description=__doc__)
    parser.add_argument("connection", type=Path)
    parser.add_argument("--modes", default=",".join(sorted(MODES)))
    parser.add_argument("--home", type=Path, default=None, help="kept; default: a folder of its own")
    asked = parser.parse_args()
    home = (asked.home or Path(mkdtemp(prefix="fidelity-"))).absolute()
    recording = kept(asked.connection, home / "recording", home)
    settings = SparkSettings(str(home / "warehouse"), jvm_log=home / "jvm.log", short_lived=True)
    session = start_session(settings)
    engine = Engine(Settings.load(home), tables=IcebergTables(session, settings))
    connection = Connection.from_file(asked.connection)
    reports = {
        mode: check(connection, recording, WriteMode(mode), engine, lambda name: session.table(name).toArrow())
        for mode in asked.modes.split(",")
    }
    sys.stdout.write(text({mode: each.values() for mode, each in reports.items()}) + "\n")
    return 1 if any(report.wrong for each in reports.values() for report in each.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
