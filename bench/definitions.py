"""Measures how long the definitions of many streams load, against as many bare specs: `python -m bench.definitions`.

Each is timed in processes of its own, in CPU seconds and without imports; the best of the rounds counts. `snapshot`
is the one that the web server requests from the code server, made and serialised.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._serdes import serialize_value

from dagster_airbyte_proto import Connection, build_connector_assets


def bare_assets(streams: int) -> dg.AssetsDefinition:
    """As many assets with nothing but a key."""
    specs = [dg.AssetSpec(["shop", f"s{number}"], skippable=True) for number in range(streams)]

    @dg.multi_asset(name="shop", specs=[spec.with_io_manager_key("io_manager") for spec in specs], can_subset=True)
    def shop():  # type: ignore[no-untyped-def]  # an annotation would have to name every output
        ...

    return shop


def connection_assets(catalog: Path) -> dg.AssetsDefinition:
    launch = {"kind": "pypi", "package": "airbyte-source-faker==7.2.1"}
    connector = {"protocol": "airbyte", "launch": launch}
    return build_connector_assets(Connection.model_validate({"name": "shop", "connector": connector}), catalog=catalog)


def write_catalog(path: Path, streams: int, columns: int) -> None:
    """A catalog of streams that are read incrementally, each with a key, a cursor, and comments on its columns."""
    kind = {"type": ["null", "string"], "description": "what the source says of it"}
    offered = [
        {
            "name": f"s{number}",
            "json_schema": {"type": "object", "properties": {f"c{column}": kind for column in range(columns)}},
            "supported_sync_modes": ["full_refresh", "incremental"],
            "source_defined_primary_key": [["c0"]],
            "default_cursor_field": ["c1"],
        }
        for number in range(streams)
    ]
    path.write_text(json.dumps({"streams": offered}))


def timed(assets: Callable[[], dg.AssetsDefinition]) -> dict[str, float]:
    """The CPU seconds of each part, in this process."""
    started = time.process_time()
    resources = {"io_manager": dg.mem_io_manager, "connector": dg.ResourceDefinition.none_resource()}
    repository = dg.Definitions([assets()], resources=resources).get_repository_def()
    repository.load_all_definitions()
    loaded = time.process_time()
    written = serialize_value(RepositorySnap.from_def(repository))
    ended = time.process_time()
    return {"load": loaded - started, "snapshot": ended - loaded, "megabytes": len(written) / 1e6}


def best(which: str, streams: int, rounds: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.definitions", "--one", which, "--streams", str(streams)]
    found = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(rounds)]
    return {part: min(each[part] for each in found) for part in found[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--columns", type=int, nargs="+", default=[10, 30])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        of = (
            (lambda: bare_assets(chosen.streams))
            if chosen.one == "bare"
            else lambda: connection_assets(Path(chosen.one))
        )
        print(json.dumps(timed(of)))
        return
    with TemporaryDirectory() as folder:
        runs = {"bare specs": "bare"}
        for columns in chosen.columns:
            catalog = Path(folder) / f"{columns}.json"
            write_catalog(catalog, chosen.streams, columns)
            runs[f"streams of {columns} columns"] = str(catalog)
        print(f"{chosen.streams} assets: CPU seconds to load, to make the snapshot; MB of it")
        for name, which in runs.items():
            print(
                "{:24} {load:5.2f} {snapshot:5.2f} {megabytes:5.1f}".format(
                    name, **best(which, chosen.streams, chosen.rounds)
                )
            )


if __name__ == "__main__":
    main()
