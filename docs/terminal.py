"""Takes the picture of a session in a terminal: `python docs/terminal.py` runs it and writes `pictures/terminal.svg`.

The commands run in a terminal of their own (a pty), so they print what they print to a person: colours, tables as wide
as the terminal, and progress that is drawn over and over. Of each command the picture has what stands there at its end.
"""

import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "pictures" / "terminal.svg"
# Installs the connector, which takes a while and is not in the picture.
BEFORE = "airbyte-proto discover shop.yaml --save"
COMMANDS = (
    "airbyte-proto check shop.yaml",
    "airbyte-proto sync shop.yaml",
    'airbyte-proto query "SELECT make, price FROM lake.shop.products ORDER BY price DESC LIMIT 3"',
    "airbyte-proto status",
)
WIDTH = 96
_CONNECTION = re.compile(r"```yaml\n(# shop\.yaml.*?)```", re.DOTALL)
# Rich moves the cursor by these alone: erase the line, go one up. Other sequences are colours, or hide the cursor.
_MOVES = re.compile(r"(\x1b\[2K|\x1b\[1A|\r\n|\n|\r)")
_MODES = re.compile(r"\x1b\[\?\d+[hl]")
_READ_BYTES = 1 << 16


def screen(output: str) -> list[str]:
    """Returns the lines that stand in the terminal at the end, with their colours."""
    lines, row = [""], 0
    for piece in _MOVES.split(_MODES.sub("", output)):
        if piece == "\x1b[1A":
            row = max(row - 1, 0)
        elif piece == "\x1b[2K":
            lines[row] = ""
        elif piece.endswith("\n"):
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif piece not in ("", "\r"):
            lines[row] += piece
    return lines


def run(command: str, folder: Path) -> str:
    """Runs a command in a terminal and returns all it printed. Exits with that if the command fails."""
    ours, theirs = pty.openpty()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRBYTE_PROTO_")}
    environment = {**kept, "PATH": path, "TERM": "xterm-256color", "COLUMNS": f"{WIDTH}", "LINES": "50"}
    process = subprocess.Popen(
        shlex.split(command), cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    printed = bytearray()
    while data := _read(ours):
        printed += data
    os.close(ours)
    if process.wait():
        sys.exit(f"{command} failed:\n{printed.decode()}")
    return printed.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, _READ_BYTES)
    except OSError:  # Linux has this in the place of an end: no process has the terminal open any more.
        return b""


def take(picture: Path) -> None:
    """Runs the session in a new folder, with the connection of the README, and writes the picture."""
    found = _CONNECTION.search((ROOT / "README.md").read_text())
    assert found is not None
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115, PTH123
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "shop.yaml").write_text(found[1])
        run(BEFORE, folder)
        for command in COMMANDS:
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            lines = [line.rstrip() for line in screen(run(command, folder))]
            console.print(*(Text.from_ansi(line) for line in lines), sep="\n", soft_wrap=True)
    console.save_svg(f"{picture}", title="airbyte-proto", unique_id="terminal")


if __name__ == "__main__":
    take(PICTURE)
