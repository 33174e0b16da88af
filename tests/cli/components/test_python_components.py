"""A destination and a transform in Python, built by `componentize-py`, at the end and on the way of rows."""

import json
import shutil
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.connector_kit.build import built_connector, component_of_python
from dagster_airbyte_proto.protocols.rapidbyte.component.wit_text import wit_text
from tests.cli.components.test_component_syncs import CONFIG, rows_of
from tests.cli.conftest import Place
from tests.support.needs import lacks
from tests.support.wasm import guests
from tests.sync.push.pushed_table import PushedTable, person
from tests.sync.push.rapidbyte.component_table import written_batches

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

Build = Callable[..., Mapping[str, Any]]
_SOURCES = Path(guests.__file__).parent / "python_guest"


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Builds the guest of a role, with what its manifest says it needs, and gives its connector as a connection has it.

    The compiled Python is the same whatever the manifest says, so it is built once.
    """
    if find_spec("componentize_py") is None:
        lacks("componentize-py", "no componentize-py (pip install componentize-py)")
    binaries: dict[str, bytes] = {}

    def built(role: str, **permissions: Any) -> Mapping[str, Any]:
        folder = tmp_path_factory.mktemp(role)
        shutil.copytree(_SOURCES, folder, dirs_exist_ok=True)
        (folder / "wit").mkdir()
        (folder / "wit" / "rapidbyte-connector.wit").write_text(wit_text())
        manifest = {"id": f"tests/{role}", "roles": {role: {}}, "permissions": permissions}
        (folder / "manifest.json").write_text(json.dumps(manifest))

        def compiler(place: Path, name: str) -> bytes:
            if name not in binaries:
                binaries[name] = component_of_python(place, name)
            return binaries[name]

        path = built_connector(folder, compiler)
        return {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": str(path)}}

    return built


def _rows(folder: Path) -> list[dict[str, Any]]:
    return [row for run in written_batches(folder) for batch in run for row in batch.to_pylist()]


def test_rows_go_from_a_source_through_a_transform_to_a_destination(place: Place, build: Build) -> None:
    granted = place.folder / "granted"
    granted.mkdir()
    (place.folder / "source.wasm").write_bytes(guests.built().read_bytes())
    to = {"connector": build("destination", fs={"preopens": [str(granted)]}), "config": {"folder": str(granted)}}
    step = {"connector": build("transform"), "config": {}, "columns": {"name": "string"}}
    source = {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": "source.wasm"}}
    streams = {"users": {"write": "append_dedup"}}
    file = place.connect({}, connector=source)
    document = json.loads(Path(file).read_text())
    document |= {"config": CONFIG, "to": to, "transforms": [step], "streams": streams}
    Path(file).write_text(json.dumps(document))

    report = place.json("sync", file)

    users = report["streams"]["users"]
    assert (report["status"], users["committed"], users["state"]["cursor_value"]["value"]) == ("complete", 3, 3), report
    expected = [{**row, "name": row["name"] and row["name"].upper()} for row in rows_of(1, 2, 3)]
    assert _rows(granted) == expected
    assert place.json("sync", file)["streams"]["users"]["state"]["cursor_value"]["value"] == 5
    assert [row["id"] for row in _rows(granted)] == [1, 2, 3, 4, 5]


def test_a_push_has_its_rejected_rows_and_its_error(quick_folder: Path, build: Build) -> None:
    granted = quick_folder / "granted"
    granted.mkdir()
    table = PushedTable(quick_folder, protocol="rapidbyte")
    table.launch = dict(build("destination", fs={"preopens": [str(granted)]})["launch"])
    table.config = {"folder": str(granted), "record": json.dumps({"id": 3})}
    rows = [person(number) for number in range(12)]
    table.fill(rows)
    pushed = table.contacts()
    assert (pushed.status, pushed.acknowledged, pushed.rejected) == ("complete", 11, 1), pushed
    assert pushed.rejections == {"data: it has no home": 1}
    assert _rows(granted) == rows

    table.config = {"folder": str(granted), "fail": True}
    table.fill([*rows, person(99)])
    failed = table.contacts()
    assert (failed.status, failed.unknown, failed.retryable) == ("failed", 1, False), failed
    assert "transient-db/DISK: the disk is full" in str(failed.error)


def test_a_transform_rejects_a_row(place: Place, build: Build) -> None:
    step = {"connector": build("transform"), "config": {"record": '{"_airbyte_row": 2}'}, "columns": {"name": "string"}}
    report = place.json("sync", place.connect({"streams": {"users": {"records": 5}}}, transforms=[step]))
    users = report["streams"]["users"]
    assert (users["status"], users["committed"], users["rejected"]) == ("complete", 4, 1), users
