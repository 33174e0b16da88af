"""The tests' copy of the example project, with a connection beside it that hangs."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from dagster_airbyte_proto.testing import fake_source

_ROOT = Path(__file__).parent.parent.parent
TICKETS = 25
_HANGS_AFTER = TICKETS + 15
_SCENARIO: dict[str, Any] = {
    "streams": {"tickets": {"records": TICKETS}, "calls": {"records": 1000}},
    "failure": {"kind": "hang", "after": _HANGS_AFTER},
}


class Project(NamedTuple):
    """A folder with the example as somebody who has just cloned it finds it, and `support`: when it syncs both of its
    streams, all tickets come and some of the calls, and then nothing more."""

    folder: Path

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace.yaml"

    @property
    def data(self) -> Path:
        return self.folder / "example_project" / "data"

    @property
    def home(self) -> Path:
        return self.folder / "example_project" / ".airbyte-proto"

    @property
    def hanging_connector(self) -> Path:
        """The program of `support`: what has this path in its command line is a connector of this project."""
        return self.folder / "support" / "fake_source.py"

    def table(self, namespace: str, name: str) -> Path:
        return self.home / "warehouse" / namespace / name


def copied_project(folder: Path) -> Project:
    """The example of this checkout without what runs of it have left behind."""
    left_behind = shutil.ignore_patterns(".airbyte-proto", "__pycache__")
    shutil.copytree(_ROOT / "example_project", folder / "example_project", ignore=left_behind)
    project = Project(folder)
    _add_support(project)
    written = yaml.safe_load((_ROOT / "workspace.yaml").read_text())
    file = {"relative_path": "support/support.py", "location_name": "support"}
    written["load_from"].append({"python_file": file})
    project.workspace.write_text(yaml.safe_dump(written))
    return project


def _add_support(project: Project) -> None:
    folder = project.hanging_connector.parent
    folder.mkdir()
    shutil.copy(fake_source.__file__, project.hanging_connector)
    shutil.copy(Path(__file__).with_name("support.py"), folder)
    command = [sys.executable, "-I", "-S", str(project.hanging_connector)]
    connection = {
        "connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": command}},
        "config": {"scenario": _SCENARIO},
        "load": {"max_bytes": 1},  # every state ends a load
    }
    (folder / "support.yaml").write_text(yaml.safe_dump(connection))
    streams = [fake_source.catalog_stream(name, written) for name, written in _SCENARIO["streams"].items()]
    (folder / "support.json").write_text(json.dumps({"streams": streams}))
