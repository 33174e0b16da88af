"""Finds the folder of a project from any of its subfolders, as git does."""

from pathlib import Path

HOME = Path(".airbyte-proto")
SETTINGS = Path("airbyte-proto.yaml")


def project_folder(start: Path) -> Path:
    """The nearest folder, from `start` upward, with a home folder or a settings file; `start` if there is none."""
    above = (folder for folder in (start, *start.parents) if (folder / HOME).is_dir() or (folder / SETTINGS).is_file())
    return next(above, start)
