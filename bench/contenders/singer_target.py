"""A Singer target that reads the same records as Singer messages.

The target reads the file on its stdin: no tap and no pipe of ours is measured. `options.target` is the program,
`options.config` its config. Of the targets that run on today's Python, those on Meltano's SDK are
meltanolabs-target-csv, the cheapest one, and target-duckdb; target-jsonl is the best known one. The SDK's batch sizes
and validation are set to be as cheap as possible (see `cases`). Its start-up of some tenths of a second counts, since
the program cannot be warmed up.
"""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

from bench.contenders.catalog import json_schemas
from bench.meter import Task, childrens_peak_bytes, measure


def main() -> None:
    task = Task.from_argument(sys.argv[1])
    folder = Path(task.folder)
    target, names = task.options["target"], list(json_schemas(task.catalog))
    config = folder / "config.json"
    config.write_text(json.dumps(task.options["config"]).replace("{folder}", str(folder)))

    version = task.options.get("version", "")

    def land() -> None:
        program = Path(sys.executable).parent / target
        with Path(task.recording).open("rb") as recording:
            subprocess.run([program, "--config", config], stdin=recording, stdout=subprocess.DEVNULL, check=True,
                           cwd=folder, env=os.environ | {"SINGER_SDK_LOG_LEVEL": "ERROR"})  # fmt: skip

    def rows() -> int:
        if (database := folder / "landed.duckdb").exists():
            return _rows_of(database, names)
        return sum(_rows(file) for name in names for file in folder.rglob(f"{name}*.*") if file.suffix != ".json")

    measure(land, rows, {target: version}, peak=childrens_peak_bytes)


def _rows(file: Path) -> int:
    if file.suffix == ".jsonl":
        with file.open("rb") as lines:
            return sum(1 for _ in lines)
    with file.open(newline="") as lines:
        return sum(1 for _ in csv.reader(lines)) - 1


def _rows_of(database: Path, names: list[str]) -> int:
    import duckdb  # of the target's own environment

    with duckdb.connect(str(database), read_only=True) as connection:
        found = (connection.execute(f'select count(*) from "{name}"').fetchone() for name in names)
        return sum(row[0] for row in found if row)


if __name__ == "__main__":
    main()
