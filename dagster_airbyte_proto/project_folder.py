"""Finds the folder of a project from any of its subfolders, as git does, and in it the home folder. The same for the
command line, Dagster and functions that are called from Python. Also the home of a user, for paths with ~."""

import os
from pathlib import Path

from dagster_airbyte_proto.errors import ConfigError

HOME = Path(".airbyte-proto")
HOME_VARIABLE = "AIRBYTE_PROTO_HOME"
SETTINGS = Path("airbyte-proto.yaml")


def project_folder(start: Path) -> Path:
    """The nearest folder, from `start` upward, with a home folder or a settings file; `start` if there is none."""
    return next(filter(_is_project, (start, *start.parents)), start)


def _is_project(folder: Path) -> bool:
    try:
        return (folder / HOME).is_dir() or (folder / SETTINGS).is_file()
    except OSError:  # A folder that this user may not look into, as one above the working directory of `sudo -u`.
        return False


def working_folder() -> Path:
    """The working directory. Raises ConfigError where it was removed under the process."""
    try:
        return Path.cwd()
    except OSError as error:
        raise ConfigError(
            "looking for the project",
            f"the working directory cannot be read: {error.strerror}",
            remedy="Change to a folder that is there.",
        ) from error


def expanded(path: Path | str) -> Path:
    """The path with the home of its user in the place of ~. Raises ConfigError where that home is not known, as of a
    container's user that is none of its image."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(
            f"looking for {path}",
            "the home of its user is not known: neither HOME nor the users of this machine name it",
            remedy="Set the variable HOME, or write the whole path.",
        ) from error


def home_folder(named: Path | str | None = None) -> Path:
    """The `named` folder, else the environment's `AIRBYTE_PROTO_HOME`, else the one of the project in whose folder, or
    below it, the process runs."""
    chosen = named or os.environ.get(HOME_VARIABLE)
    return expanded(chosen) if chosen else project_folder(working_folder()) / HOME
