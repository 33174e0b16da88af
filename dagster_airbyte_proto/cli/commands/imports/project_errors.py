"""The errors of the taps or syncs of a project that cannot be imported. One of them leaves the others alone."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from dagster_airbyte_proto.cli.output import Answer, error_value, plain
from dagster_airbyte_proto.errors import InternalError, ProtoError

_FAILED, _USAGE = 1, 2
_NOT_IMPORTED = "is not imported"


class _Found(NamedTuple):
    """An error, the name of its tap or sync, the file of that if it has one of its own, and the effect."""

    name: str
    file: str
    effect: str
    error: ProtoError


class ProjectErrors:
    """Collects them. `kind` is the project's word for what is imported, `again` says how to import the rest later."""

    def __init__(self, kind: str, again: str) -> None:
        self._kind = kind
        self._again = again
        self._found: list[_Found] = []

    def add(self, name: str, error: ProtoError, *, file: str = "", effect: str = _NOT_IMPORTED) -> None:
        self._found.append(_Found(name, file, effect, error))

    @contextmanager
    def leaving_others(self, name: str, *, file: str = "", effect: str = _NOT_IMPORTED) -> Iterator[None]:
        """Adds an error in here as that of this name, and goes on behind it."""
        try:
            yield
        except InternalError:
            raise
        except ProtoError as error:
            self.add(name, error, file=file, effect=effect)

    def answer(self, made: Sequence[Mapping[str, Any]], left: Sequence[str], lines: Sequence[str]) -> Answer:
        """The answer of the import: the connections that it `made`, what it has `left` of the project beside them, its
        `lines`, and at their end the errors. Where there are some the exit code is 1, or 2 if nothing was made."""
        value = {
            "connections": [*made],
            "not_carried_over": [*left],
            "errors": [
                {self._kind: each.name, "file": each.file or None, "error": error_value(each.error)}
                for each in self._found
            ],
        }
        if not self._found:
            return Answer(value, tuple(lines))
        return Answer(value, (*lines, *map(self._line, self._found), self._again), _FAILED if made else _USAGE)

    def _line(self, found: _Found) -> str:
        file = f" ({plain(found.file)})" if found.file else ""
        text = plain(str(found.error), max_characters=20_000).replace("\n", "\n  ")
        return f"error: the {self._kind} {plain(found.name)}{file} {found.effect}: {text}"
