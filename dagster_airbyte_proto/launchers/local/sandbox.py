"""A program under bubblewrap (`bwrap`), which needs no root: a view of this machine's files, and namespaces of its own.

1. All files can be read as before, none written, but some folders are hidden behind empty ones: /tmp, /run (sockets of
   other programs, Docker's among them, and secrets of containers), the user's home, and those that `hidden` names.
2. What the program needs of hidden folders is put back, read-only: its own file, its Python environment and that one's
   interpreter, the files in its command line, and those of certificates that its variables name. A script in a
   `node_modules` comes with all of that folder.
3. It writes to the private folder of its run, to its working folder if the connection names one, and to /tmp.
4. Folders deeper in the tree come last, so that they win over those around them.
5. A file that `hidden_files` names is hidden with its folder, wherever that can be seen, and all else in the folder is
   put back. An empty file in its place would not do: SQLite removes those beside a store and makes new ones. No file
   can be made in such a folder: it would be lost with the sandbox.
6. It sees no process but its own (PID namespace). When its first process ends, the kernel ends the others: none can
   escape by leaving its group, and its guardian is out of reach.
"""

import os
import pwd
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.permissions import CERTIFICATES, Permissions

_BASE = (
    "--unshare-all", "--die-with-parent", "--cap-drop", "ALL",
    "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
)  # fmt: skip
_ALWAYS_HIDDEN = (Path("/tmp"), Path("/var/tmp"), Path("/run"), Path("/var/run"))  # noqa: S108 - what is hidden
_NAME_SERVERS = (Path("/run/systemd/resolve"), Path("/run/resolvconf"))
_PROBE_SECONDS = 20.0
_MAX_BESIDE = 1000
"""Files beside a hidden one: each is a mount of its own, and bwrap takes some 3,000."""
_ACTION = "starting the connector in a sandbox"


class SandboxedProgram(NamedTuple):
    """A program with its arguments, the folders that it may write to, and its environment. It starts in the last
    folder."""

    command: Sequence[str]
    folders: Sequence[Path]
    environment: Mapping[str, str]


def sandboxed_command(program: SandboxedProgram, permissions: Permissions) -> list[str]:
    """Returns the command that runs the program in its sandbox. Raises ConfigError if this machine allows none."""
    bubblewrap = find_bubblewrap()
    hidden = list(_hidden_folders(program.environment, permissions))
    mounts = dict.fromkeys(hidden, "--tmpfs")
    mounts |= dict.fromkeys(_granted(program, hidden), "--ro-bind")
    writable = {*program.folders, *(path for path in permissions.writable if path.is_dir())}
    mounts |= dict.fromkeys((path.resolve() for path in writable), "--bind")
    without_files = list(_hide_files(mounts, permissions.hidden_places()))
    options = [word for path in sorted(mounts, key=_depth) for word in _words(mounts[path], path)]
    options += [word for folder in without_files for word in ("--remount-ro", str(folder))]
    network = ["--share-net"] if permissions.network else []
    return [
        bubblewrap,
        *_BASE,
        *network,
        *options,
        "--chdir",
        str(program.folders[-1].resolve()),
        "--",
        *program.command,
    ]


def find_bubblewrap() -> str:
    """The path of bwrap. Raises ConfigError where there is none, or where it may not do its work."""
    found = shutil.which("bwrap")
    if found is None:
        raise ConfigError(
            _ACTION,
            "there is no bwrap on the PATH",
            remedy="Install bubblewrap (Debian: apt-get install bubblewrap), or remove `sandbox` from the connection.",
        )
    try:
        tried = subprocess.run(
            [found, *_BASE, "true"], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
        )
        said = tried.stderr.strip() if tried.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    if said:
        raise ConfigError(
            _ACTION,
            f"bubblewrap may not make namespaces here: {said}",
            remedy="Allow user namespaces (sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces, "
            "kernel.apparmor_restrict_unprivileged_userns). In a container they are not allowed: run the connector's "
            "image beside it. Or remove `sandbox` from the connection.",
        )
    return found


def _hidden_folders(environment: Mapping[str, str], permissions: Permissions) -> Iterator[Path]:
    named = (*_ALWAYS_HIDDEN, *_homes(environment), *permissions.hidden)
    for path in {each.resolve() for each in named}:
        if path.is_dir() and path.parent != path:  # the root cannot be hidden
            yield path


def _homes(environment: Mapping[str, str]) -> Iterator[Path]:
    """The program's home, and the user's own, which the connection or our environment may not name."""
    yield Path(environment.get("HOME") or "/")
    with suppress(RuntimeError):  # HOME is not set, and the user is none of this machine's
        yield Path.home()
    with suppress(KeyError):
        yield Path(pwd.getpwuid(os.geteuid()).pw_dir)


def _granted(program: SandboxedProgram, hidden: Sequence[Path]) -> Iterator[Path]:
    """The parts of hidden folders that the program needs: whole folders, or a file where its folder has more in it."""
    public = (*(path for path in _NAME_SERVERS if path.is_dir()), *_certificates(program.environment))
    needed = [*_needed(program), *((path, path) for path in public)]
    for folder, file in {*needed, *((folder.resolve(), file.resolve()) for folder, file in needed)}:
        place = file if any(each.is_relative_to(folder) for each in hidden) else folder
        if any(place.is_relative_to(each) for each in hidden):
            yield place


def _certificates(environment: Mapping[str, str]) -> Iterator[Path]:
    """The files of certificates that its variables name: a proxy may have an authority of its own."""
    for name in sorted(CERTIFICATES & environment.keys()):
        with suppress(OSError):  # not to be looked at
            path = Path(environment[name])
            if path.is_absolute() and path.is_file():
                yield path


def _needed(program: SandboxedProgram) -> Iterator[tuple[Path, Path]]:
    """Folders that the program needs, each with the file in it that it needs at least."""
    search_path = program.environment.get("PATH")
    for argument in program.command:
        with suppress(OSError, ValueError):  # not every argument can be a path
            path = Path(argument)
            if path.is_absolute() and path.is_file():
                # Also behind the first: a program may start another, as `nice` and `sh -c` do.
                yield from _needed_to_execute(path, search_path)


def _needed_to_execute(program: Path, search_path: str | None) -> Iterator[tuple[Path, Path]]:
    """The program's folder, or its whole Python environment, and those of all that it leads to."""
    todo, seen = [program, program.resolve()], set[Path]()
    while todo:
        file = todo.pop()
        if file in seen or not file.is_file():
            continue
        seen.add(file)
        environment = file.parent.parent
        has_packages = (environment / "pyvenv.cfg").is_file()
        if has_packages:
            todo.append(environment / "bin" / "python")
        is_python = file.parent.name == "bin" and any(environment.glob("lib/python3*/os.py"))
        if "node_modules" in file.parts:
            modules = Path(*file.parts[: file.parts.index("node_modules") + 1])
            yield modules, modules
        else:
            yield (environment if has_packages or is_python else file.parent), file
        if file.is_symlink():
            todo.append(file.parent / file.readlink())
        if (interpreter := _interpreter(file, search_path)) is not None:
            todo += [interpreter, interpreter.resolve()]


def _interpreter(program: Path, search_path: str | None) -> Path | None:
    """The program that a #! line names; None if there is no such line."""
    with program.open("rb") as file:
        first = file.readline(4096)
    words = first[2:].decode(errors="surrogateescape").split() if first.startswith(b"#!") else []
    if len(words) > 1 and Path(words[0]).name == "env":
        found = shutil.which(words[-1], path=search_path)
        return Path(found) if found else None
    return Path(words[0]) if words else None


def _hide_files(mounts: dict[Path, str], files: Collection[Path]) -> Iterator[Path]:
    """Adds mounts that hide these files where they could be seen. Yields the folders that are without them. Raises
    ConfigError for one in whose folder they cannot be hidden."""
    names: defaultdict[Path, set[str]] = defaultdict(set)
    for file in files:
        names[file.parent].add(file.name)
        for mount in mounts:  # A link that is mounted shows what it leads to, at its own place.
            if file.is_relative_to(real := mount.resolve()):
                names[mount / file.parent.relative_to(real)].add(file.name)
    for folder in sorted(names, key=_depth):
        option = next((mounts[each] for each in (folder, *folder.parents) if each in mounts), "--ro-bind")
        if option == "--tmpfs" or not folder.is_dir():
            continue
        beside = [each for each in folder.iterdir() if not each.name.startswith(tuple(names[folder]))]
        if folder.parent == folder or len(beside) > _MAX_BESIDE:
            raise ConfigError(
                _ACTION,
                f"{', '.join(sorted(names[folder]))} in {folder} cannot be hidden among {len(beside):,} other files",
                remedy="Move it into a folder of its own: name a state store by state_url, settings by --settings.",
            )
        mounts[folder] = "--tmpfs"
        for each in beside:
            # A link as a link: a mount would show what it leads to, also where that is hidden.
            mounts.setdefault(each, "--symlink" if each.is_symlink() else f"{option.removesuffix('-try')}-try")
        yield folder


def _depth(path: Path) -> int:
    return len(path.parts)


def _words(option: str, path: Path) -> list[str]:
    if option == "--tmpfs":
        return [option, str(path)]
    return [option, str(path.readlink() if option == "--symlink" else path), str(path)]
