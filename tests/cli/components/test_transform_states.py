"""The states of components among the transforms: they go from batch to batch, and are saved with the rows of these."""

import json
import signal
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.checkpoints.kept_values import Asset
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.checkpoints.transform_states import stored_transform_states
from dagster_airbyte_proto.loads.load import TransformState
from dagster_airbyte_proto.model import StreamId, TableName
from dagster_airbyte_proto.testing import crash_points
from dagster_airbyte_proto.testing.folder import FOLDER_FORMAT
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.cli.components.test_component_syncs import CONFIG, checkpoint
from tests.cli.conftest import Place, until
from tests.support.wasm import guests

pytestmark = pytest.mark.everyday("test_its_state_goes_on_with_the_next_sync")


def _connect(place: Place, script: str = "tally", source: dict[str, Any] | None = None, **written: Any) -> str:
    """A component that sends rows 1 to 3, then 4 and 5, each with a checkpoint, and one that counts them."""
    for role in ("source", "transform"):
        (place.folder / f"{role}.wasm").write_bytes(guests.built(role).read_bytes())

    def connector(role: str) -> dict[str, Any]:
        return {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": f"{role}.wasm"}}

    users = f"!ipc first;!{checkpoint(3)};?ipc second;?{checkpoint(5)}"
    file = place.connect(
        {},
        connector=connector("source"),
        config={**CONFIG, "script_users": users, **(source or {})},
        transforms=[{"connector": connector("transform"), "config": {"script": script}, "columns": {"name": "string"}}],
        streams={"users": {"write": "append"}},
    )
    document = {**json.loads(Path(file).read_text()), **written}
    Path(file).write_text(json.dumps(document))
    return file


def _kept(place: Place) -> TransformState | None:
    """The state that the transform keeps for the stream."""
    with closing(SqlStore(f"sqlite:///{place.folder}/.airbyte-proto/state.db")) as store:
        states = stored_transform_states(store, Asset("shop", StreamId.of("users")))
    return next(iter(states), None)


def _counted(place: Place) -> int:
    """The rows that the transform says it has seen, by its value and by its checkpoint."""
    kept = _kept(place)
    assert kept is not None
    rows = int(kept.values["rows"])
    assert json.loads(kept.checkpoint)["cursor_value"] == {"type": "int64", "value": rows}
    return rows


def _rows(place: Place) -> int:
    return int(FolderTables(place.folder / ".airbyte-proto" / "warehouse").rows(TableName("shop", "users")).num_rows)


def test_its_state_goes_on_with_the_next_sync(place: Place) -> None:
    file = _connect(place, "context;tally")
    for rows in (3, 5):
        said = place.run("sync", file, "--verbose").err
        assert (_counted(place), _rows(place)) == (rows, rows)
    assert '"cursor_info":{"cursor_field":"rows","cursor_type":"int64","last_value":{"type":"int64","value":3}}' in said
    assert '"stream_name":"users","source_stream_name":"users"' in said


def test_rows_behind_the_last_checkpoint_are_not_in_it(place: Place) -> None:
    script = f"ipc first;{checkpoint(3)};ipc second;fail"
    file = _connect(place, source={"script_users": script}, load={"max_bytes": 1})
    assert place.json("sync", file, code=1)["streams"]["users"]["committed"] == 3
    assert (_counted(place), _rows(place)) == (3, 3)


def test_a_batch_that_fails_changes_nothing(place: Place) -> None:
    place.json("sync", _connect(place))
    place.json("sync", _connect(place, "tally;fail"), code=1)
    assert (_counted(place), _rows(place)) == (3, 3)
    place.json("sync", _connect(place))
    assert (_counted(place), _rows(place)) == (5, 5)


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("pass trap 2", "the component trapped"),
        ("pass waver 3", "a row came back that was not sent, or only after"),
        ("tally;fail", "BOOM"),
    ],
)
def test_of_a_load_in_whose_midst_it_fails_nothing_lands(place: Place, script: str, found: str) -> None:
    source = {"script_users": ";".join(["ipc first"] * 6 + [checkpoint(18)])}
    users = place.json("sync", _connect(place, script, source), code=1)["streams"]["users"]
    assert (users["committed"], users["rejected"], _kept(place)) == (0, 18, None), users
    assert found in users["error"]
    place.json("sync", _connect(place, "log 2 it begins;tally", source))
    assert (_counted(place), _rows(place)) == (18, 18)


def test_rows_of_a_whole_batch_may_be_dropped(place: Place) -> None:
    source = {"script_users": ";".join(["ipc first"] * 3 + [checkpoint(9)])}
    users = place.json("sync", _connect(place, "pass drop 2", source))["streams"]["users"]
    assert (users["committed"], users["dropped"]) == (6, 3)


def test_the_batches_of_a_load_go_through_one_process(place: Place) -> None:
    source = {"script_users": ";".join(["ipc first"] * 20 + [checkpoint(60)])}
    said = place.run("sync", _connect(place, "log 2 it begins;tally", source), "--verbose").err
    assert (_counted(place), said.count("it begins")) == (60, 1)


def test_a_table_that_is_replaced_begins_without_a_state(place: Place) -> None:
    source = {"script_users": f"ipc first;{checkpoint(3)}"}
    replaced = {"users": {"read": "full_refresh", "write": "overwrite"}}
    for streams, words, rows in (
        (replaced, (), 3),
        (replaced, (), 3),
        ({"users": {"write": "append"}}, ("--refresh",), 3),
        ({"users": {"write": "append"}}, (), 6),
    ):
        place.json("sync", _connect(place, source=source, streams=streams), *words)
        assert (_counted(place), _rows(place)) == (rows, rows)


def test_a_reset_drops_it_and_a_rollback_brings_it_back(place: Place) -> None:
    file = _connect(place)
    place.json("sync", file)
    version = place.json("state", "show", "shop", "users")["states"][0]["version"]
    place.json("sync", file)
    place.json("state", "rollback", "shop", "--to", str(version))
    assert _counted(place) == 3
    place.json("state", "reset", "shop", "users")
    assert _kept(place) is None


def test_what_belongs_to_no_stream_stays_if_the_run_ends_well(place: Place) -> None:
    script = "get 0 p;get 2 i;put 0 p one;put 2 i two;tally"
    place.json("sync", _connect(place, f"{script};fail"), code=1)
    found = [place.run("sync", _connect(place, script), "--verbose").err for _ in range(2)]
    assert [("get one" in each, "get two" in each, "get none" in each) for each in found] == [
        (False, False, True),
        (True, True, False),
    ]


def test_one_that_keeps_nothing_leaves_nothing(place: Place) -> None:
    place.json("sync", _connect(place, "upper"))
    assert _kept(place) is None


@pytest.mark.parametrize(
    "point", ["load.announced:1", "table.committed:1", "load.committed:1", "load.promoted:1", "load.announced:2"]
)
def test_after_a_kill_it_counts_the_rows_of_the_table(place: Place, point: str, tmp_path: Path) -> None:
    Path("airbyte-proto.yaml").write_text(f"lease_seconds: 1\ncatalog: {{format: {FOLDER_FORMAT}}}\n")
    script = f"!ipc first;!{checkpoint(3)};ipc second;{checkpoint(5)}"
    file = _connect(place, source={"script_users": script}, load={"max_bytes": 1})
    log = tmp_path / "points"
    died = subprocess.run([*crash_points.command(point, log), "sync", file], cwd=place.folder, check=False)
    assert died.returncode == -signal.SIGKILL, log.read_text()
    until(lambda: place.run("sync", file, "--json").code == 0)  # The dead run's lease has to run out first.
    assert _counted(place) == _rows(place)


@pytest.mark.parametrize("point", ["load.promoted:1", "load.announced:2", "load.committed:2"])
def test_a_generation_that_goes_on_has_its_state(place: Place, point: str, tmp_path: Path) -> None:
    """The first load of the generation is on a branch of the table when the process is killed."""
    Path("airbyte-proto.yaml").write_text(f"lease_seconds: 1\ncatalog: {{format: {FOLDER_FORMAT}}}\n")
    script = f"!ipc first;!{checkpoint(3)};ipc second;{checkpoint(5)}"
    file = _connect(place, source={"script_users": script}, load={"max_bytes": 1})
    log = tmp_path / "points"
    place.json("sync", file)
    died = subprocess.run([*crash_points.command(point, log), "sync", file, "--refresh"], cwd=place.folder, check=False)
    assert died.returncode == -signal.SIGKILL, log.read_text()
    reports: list[Any] = []

    def is_synced() -> bool:
        shown = place.run("sync", file, "--refresh", "--json")
        reports.append(shown.json)
        return shown.code == 0

    until(is_synced)  # The dead run's lease has to run out first.
    assert (
        reports[-1]["streams"]["users"]["emitted"] == 2
    )  # It went on, and the script sends these whatever came before.
    rows = 5 if point == "load.promoted:1" else 7
    assert (_counted(place), _rows(place)) == (rows, rows)


def test_a_generation_that_died_changes_nothing_of_the_tables_own_rows(place: Place, tmp_path: Path) -> None:
    """Its first load is on a branch of the table; then rows are appended to the table itself, and it goes on."""
    Path("airbyte-proto.yaml").write_text(f"lease_seconds: 1\ncatalog: {{format: {FOLDER_FORMAT}}}\n")
    script = f"!ipc first;!{checkpoint(3)};ipc second;{checkpoint(5)}"
    file = _connect(place, source={"script_users": script}, load={"max_bytes": 1})
    for _ in range(2):
        place.json("sync", file)
    assert (_counted(place), _rows(place)) == (7, 7)
    died = subprocess.run(
        [*crash_points.command("load.promoted:1", tmp_path / "points"), "sync", file, "--refresh"],
        cwd=place.folder,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL
    assert (_counted(place), _rows(place)) == (7, 7)
    until(lambda: place.run("sync", file, "--json").code == 0)  # The dead run's lease has to run out first.
    assert (_counted(place), _rows(place)) == (9, 9)
    place.json("sync", file, "--refresh")
    assert _counted(place) == _rows(place)


def test_in_a_relay_it_moves_with_the_acknowledged_rows(place: Place) -> None:
    granted = place.folder / "granted"
    granted.mkdir()
    (place.folder / "destination.wasm").write_bytes(guests.destination(granted))
    launch = {"kind": "wasm", "path": "destination.wasm"}
    to = {"connector": {"protocol": "rapidbyte", "launch": launch}, "config": {"commit_rows": "2", "fault": "silent"}}
    streams = {"users": {"write": "append_dedup"}}
    place.json("sync", _connect(place, to=to, streams=streams), code=1)
    assert _kept(place) is None
    to["config"] = {"commit_rows": "2"}
    for rows in (3, 5):
        assert place.json("sync", _connect(place, to=to, streams=streams))["status"] == "complete"
        assert _counted(place) == rows
