"""Which program a command means, and which very version of it would run."""

import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from dagster_airbyte_proto.errors import ConfigError

_DOING = "starting the connector"


def find_program(name: str, *, search_path: str, folder: Path) -> Path:
    """The executable file that `name` means; raises ConfigError that says where it was looked for.

    A name with a slash is a path, relative to `folder`. Any other is looked for on the search path, then beside our
    own Python: a connector installed next to us runs without activating anything.
    """
    if os.sep in name:
        return _executable(folder / Path(name).expanduser(), named=name)
    places = [*search_path.split(os.pathsep), str(Path(sys.executable).parent)]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is not None:
        return Path(found).absolute()
    for place in places:
        if (Path(place) / name).is_file():
            return _executable(Path(place) / name, named=name)
    raise ConfigError(
        _DOING,
        f"there is no program {name!r} in {', '.join(place for place in places if place)}",
        remedy="Install it, or give `command` the full path of the program.",
    )


def _executable(path: Path, *, named: str) -> Path:
    path = path.absolute()
    if path.is_dir():
        raise ConfigError(_DOING, f"{named!r} is a folder ({path})", remedy="Name the program in it.")
    if not path.exists():
        raise ConfigError(_DOING, f"there is no file {path}", remedy="Correct `command`, or install the program.")
    if not os.access(path, os.X_OK):
        raise ConfigError(_DOING, f"{path} is not executable", remedy=f"chmod +x {path}")
    return path


def program_identity(program: Path, command: Sequence[str], *, folder: Path) -> str:
    """The program's name and a digest of all that decides what runs.

    That is the command, the size and time of the program and of each file named in the command, and, where the program
    stands in a Python environment, the names (with versions) of what is installed there.
    """
    digest = hashlib.sha256()
    for part in _decisive(program, command, folder):
        digest.update(part.encode(errors="surrogateescape") + b"\0")
    return f"{program.name}-{digest.hexdigest()[:16]}"


def _decisive(program: Path, command: Sequence[str], folder: Path) -> Iterator[str]:
    yield from command
    for path in (program, program.resolve(), *(folder / argument for argument in command[1:])):
        # Not every argument can be a path: it may be too long for one, or hold a zero byte.
        with suppress(OSError, ValueError):
            about = path.stat()
            if stat.S_ISREG(about.st_mode):
                yield f"{path} {about.st_size} {about.st_mtime_ns}"
    for environment in sorted({program.parent.parent, program.resolve().parent.parent}):
        if (environment / "pyvenv.cfg").is_file():
            yield from sorted(path.name for path in environment.glob("lib/python*/site-packages/*.dist-info"))
