"""The files of a recording, a folder that a person can read. For the first `write`:

write-1.stdout.jsonl  the bytes of stdout, secrets masked
write-1.stdin.jsonl   the bytes that its stdin took, secrets masked; only if it took input
write-1.turns.jsonl   in what order the two went: see `Turn`; only if it took input
write-1.files/        the files it was given (config, catalog, state), secrets masked
write-1.json          its arguments, how it ended, the last lines of stderr; written last: if it exists, the rest is
                      complete
"""

from pathlib import Path

import msgspec

from dagster_airbyte_proto.protocols.conversation import Invocation


class RecordedRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of `VERB-N.json`. A file argument is written as `{"file": name}`.

    `input_closed` is None if the connector took no input. It is false if it ended, or was stopped, before its input was
    closed: what was written last then depended on the size of a pipe.
    """

    verb: str
    arguments: tuple[str | dict[str, str], ...]
    code: int | None
    signal: int | None
    stopped: bool
    seconds: float
    stderr_tail: tuple[str, ...]
    input_closed: bool | None = None


class Turn(msgspec.Struct, frozen=True):
    """A line of `VERB-N.turns.jsonl`: before more than `stdin_lines` were written, `stdout_lines` had been read.

    These are whole lines from the beginning on; masking keeps them, but not the number of bytes. The order is that of
    the calls of `write` and `read`: nobody outside the connector can know more. Output that no turn covers was read
    after the input had been closed.
    """

    stdin_lines: int
    stdout_lines: int


def verb_of(invocation: Invocation) -> str:
    """The request of an invocation: its first word (`read`), or all its options (`config-discover`) if there is none.

    Recordings have it in their file names, where the two requests for a spec must differ.
    """
    words = [argument for argument in invocation.arguments if isinstance(argument, str)]
    options = [word.lstrip("-") for word in words if word.startswith("-")]
    verb = words[0] if words and not words[0].startswith("-") else "-".join(options) or "run"
    return "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in verb)


class RunFiles:
    """The paths of one recorded run."""

    def __init__(self, folder: Path, name: str) -> None:
        self.stdout = folder / f"{name}.stdout.jsonl"
        self.stdin = folder / f"{name}.stdin.jsonl"
        self.turns = folder / f"{name}.turns.jsonl"
        self.given = folder / f"{name}.files"
        self.about = folder / f"{name}.json"
        self.unfinished = folder / f"{name}.json.part"

    def masked(self) -> list[Path]:
        """Returns those that exist and may hold secrets."""
        streams = (self.stdout, self.stdin, self.about, self.unfinished)
        given = self.given.iterdir() if self.given.is_dir() else ()
        return [each for each in streams if each.exists()] + list(given)
