"""Pushes and relays by their command line, as a user starts them: a process of its own for each, from its first import
to its exit."""

import subprocess
from pathlib import Path
from typing import NamedTuple

from dagster_airbyte_proto.testing import crash_points
from tests.sync.push.pushed_table import PushedTable
from tests.sync.relay.relayed_shop import RelayedShop

_TIMEOUT_SECONDS = 240.0


class _Command(NamedTuple):
    home: Path
    settings_file: Path
    words: list[str]


class DeliveryCommands:
    """Runs one command at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, place: PushedTable | RelayedShop) -> int:
        """The process id of a command that has begun. `end` it before the next one."""
        place.points_file.unlink(missing_ok=True)
        command = _command_of(place)
        program = crash_points.command("", place.points_file)
        folders = ["--home", str(command.home), "--settings", str(command.settings_file)]
        with (place.folder / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                [*program, *folders, *command.words, "--json"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        return self._process.pid

    def end(self) -> int:
        """Waits for the command; its exit code, or minus the signal."""
        assert self._process is not None
        return self._process.wait(_TIMEOUT_SECONDS)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _command_of(place: PushedTable | RelayedShop) -> _Command:
    if isinstance(place, PushedTable):
        words = ["push", str(place.connection_file()), "--retry-unknown"]
        return _Command(place.home, place.settings_file, words)
    return _Command(place.home, place.home / "settings.yaml", ["sync", str(place.connection_file)])
