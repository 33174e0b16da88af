"""Finds the folder of a project from any of its subfolders, as git does, and in it the home folder. The same for the
command line, Dagster and functions that are called from Python."""

import os
from pathlib import Path

HOME = Path(".airbyte-proto")
HOME_VARIABLE = "AIRBYTE_PROTO_HOME"
SETTINGS = Path("airbyte-proto.yaml")


def project_folder(start: Path) -> Path:
    """The nearest folder, from `start` upward, with a home folder or a settings file; `start` if there is none."""
    above = (folder for folder in (start, *start.parents) if (folder / HOME).is_dir() or (folder / SETTINGS).is_file())
    return next(above, start)


def home_folder(named: Path | str | None = None) -> Path:
    """The `named` folder, else the environment's `AIRBYTE_PROTO_HOME`, else the one of the project in whose folder, or
    below it, the process runs."""
    chosen = named or os.environ.get(HOME_VARIABLE)
    return Path(chosen) if chosen else project_folder(Path.cwd()) / HOME
