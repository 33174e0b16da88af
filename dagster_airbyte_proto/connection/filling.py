"""`${env:NAME}` in a config, filled when a run starts and never earlier.

A filled value is text and is not looked at again, so a variable cannot name another. `$${env:NAME}` stands for
the words `${env:NAME}` themselves.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from dagster_airbyte_proto.connection.faults import Fault, KeyPath

_REFERENCE = re.compile(r"(?P<escape>\$?)\$\{env:(?P<name>[^}]*)(?P<end>\}?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def refers_to_environment(text: str) -> bool:
    """Whether the text holds a reference that is not escaped."""
    return any(not match["escape"] for match in _REFERENCE.finditer(text))


def with_texts(value: Any, path: KeyPath, changed: Callable[[str, KeyPath], str]) -> Any:
    """The value with each of its strings changed, however deep; keys are left alone."""
    if isinstance(value, str):
        return changed(value, path)
    if isinstance(value, Mapping):
        return {key: with_texts(inner, (*path, key), changed) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [with_texts(inner, (*path, number), changed) for number, inner in enumerate(value)]
    return value


class Filling:
    """One pass over a config. `secrets` are the values that were filled in, `faults` what could not be."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.secrets: set[str] = set()
        self.faults: list[Fault] = []

    def filled(self, value: Any, path: KeyPath) -> Any:
        """The value with each reference in its strings filled."""
        return with_texts(value, path, self._filled_text)

    def _filled_text(self, text: str, path: KeyPath) -> str:
        return _REFERENCE.sub(lambda match: self._replacement(match, path), text)

    def _replacement(self, match: re.Match[str], path: KeyPath) -> str:
        if match["escape"]:
            return match[0][1:]
        name = match["name"]
        if not match["end"]:
            self.faults.append(Fault(path, 'a "${env:" lacks its "}"'))
        elif not _NAME.fullmatch(name):
            self.faults.append(Fault(path, '"${env:…}" must hold the name of an environment variable'))
        elif name not in self._environment:
            self.faults.append(Fault(path, f"the environment variable {name} is not set"))
        else:
            value = self._environment[name]
            self.secrets.update({value} - {""})
            return value
        return ""
