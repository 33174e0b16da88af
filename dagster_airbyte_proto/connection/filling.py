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


def unfilled(value: Any, written: Any, filled: Any) -> Any:
    """A config that was `filled`, and may have been changed since, with its references as they are `written` wherever
    they still say the same. A list is taken as it is if its length changed."""
    return _where_referred(value, (written, filled), lambda each, texts: texts[0] if each == texts[1] else each)


def refilled(value: Any, written: Any, filled: Any) -> Any:
    """The inverse of `unfilled`. Nothing else that looks like a reference is filled: it is the connector's."""
    return _where_referred(value, (written, filled), lambda each, texts: texts[1] if each == texts[0] else each)


def referred(value: Any, written: Any) -> set[str]:
    """What a config has where the user wrote references, which is secret whoever changed it."""
    found: set[str] = set()

    def note(each: Any, _: tuple[Any, Any]) -> Any:
        found.update({each} if isinstance(each, str) else ())
        return each

    _where_referred(value, (written, written), note)
    return found - {""}


def _where_referred(value: Any, texts: tuple[Any, Any], changed: Callable[[Any, tuple[Any, Any]], Any]) -> Any:
    """The value, changed where the first of the texts refers to the environment. They are alike, and it may not be."""
    written, filled = texts
    if isinstance(written, str):
        return changed(value, texts) if refers_to_environment(written) else value
    if isinstance(written, Mapping) and isinstance(value, Mapping):
        both = written.keys() & value.keys()
        return {**value, **{key: _where_referred(value[key], (written[key], filled[key]), changed) for key in both}}
    if isinstance(written, list | tuple) and isinstance(value, list | tuple) and len(value) == len(written):
        together = zip(value, written, filled, strict=True)
        return [_where_referred(each, (one, other), changed) for each, one, other in together]
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
