"""Finds the program of a command, and the identity of the version that would run."""

import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.project_folder import expanded

_ACTION = "starting the connector"
_NOEXEC = getattr(os, "ST_NOEXEC", 0)  # macOS does not show it.


def find_program(name: str, *, search_path: str, folder: Path) -> Path:
    """Returns the executable file that `name` means. Raises ConfigError with the places that were searched.

    A name with a slash is a path, relative to `folder`. Any other name is searched on the search path, then beside our
    own Python: a connector installed in our environment runs even if that is not activated.
    """
    if os.sep in name:
        return _executable(folder / expanded(name), named=name)
    places = [*search_path.split(os.pathsep), str(Path(sys.executable).parent)]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is not None:
        return Path(found).absolute()
    for place in places:
        if (Path(place) / name).is_file():
            return _executable(Path(place) / name, named=name)
    raise ConfigError(
        _ACTION,
        f"there is no program {name!r} in {', '.join(dict.fromkeys(filter(None, places)))}",
        remedy="Install it, or give `command` the full path of the program.",
    )


def _executable(path: Path, *, named: str) -> Path:
    path = path.absolute()
    if path.is_dir():
        raise ConfigError(_ACTION, f"{named!r} is a folder ({path})", remedy="Name the program in it.")
    if not path.exists():
        raise ConfigError(_ACTION, f"there is no file {path}", remedy="Correct `command`, or install the program.")
    if not os.access(path, os.X_OK):
        if path.stat().st_mode & stat.S_IXUSR and os.statvfs(path).f_flag & _NOEXEC:
            remedy = "Mount it without `noexec`, or put the program elsewhere; a package is in the home folder."
            raise ConfigError(_ACTION, f"{path} is on a disk that no program may run from (noexec)", remedy=remedy)
        raise ConfigError(_ACTION, f"{path} is not executable", remedy=f"chmod +x {path}")
    return path


def program_identity(program: Path, command: Sequence[str], *, folder: Path) -> str:
    """Returns the program's name with a digest of everything that decides what runs.

    The digest covers the command, the size and time of the program and of each file named in the command. If the
    program is in a Python environment, it covers the names and versions of the installed packages too.
    """
    digest = hashlib.sha256()
    for part in _identity_parts(program, command, folder):
        digest.update(part.encode(errors="surrogateescape") + b"\0")
    return f"{program.name}-{digest.hexdigest()[:16]}"


def _identity_parts(program: Path, command: Sequence[str], folder: Path) -> Iterator[str]:
    yield from command
    for path in (program, program.resolve(), *(folder / argument for argument in command[1:])):
        # Not every argument can be a path: it may be too long, or hold a zero byte.
        with suppress(OSError, ValueError):
            for file in (path, *_files_of_package(path)):
                yield from _identity_of_file(file)
    for environment in sorted({program.parent.parent, program.resolve().parent.parent}):
        if (environment / "pyvenv.cfg").is_file():
            yield from sorted(path.name for path in environment.glob("lib/python*/site-packages/*.dist-info"))


def _identity_of_file(path: Path) -> Iterator[str]:
    with suppress(OSError):
        about = path.stat()
        if stat.S_ISREG(about.st_mode):
            yield f"{path} {about.st_size} {about.st_mtime_ns}"


def _files_of_package(folder: Path) -> tuple[Path, ...]:
    """The files that decide what `node FOLDER` runs: the description of the package, and its script by any of the names
    that Node tries. None of a folder that is no package."""
    description = folder / "package.json"
    if not description.is_file():
        return ()
    about = json.loads(description.read_bytes())
    main = about.get("main") if isinstance(about, dict) else None
    script = folder / (main if isinstance(main, str) and main else "index.js")
    return description, script, script.with_name(f"{script.name}.js"), script / "index.js"
