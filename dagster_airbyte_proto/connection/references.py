"""Fills references to secrets in a config: `${env:NAME}`, `${file:path}`, and other schemes by entry points. This
happens when a run starts and never earlier.

1. A filled value is text and is not searched again, so a secret cannot refer to another one.
2. `$${env:NAME}` escapes a reference: it becomes the text `${env:NAME}`.
3. A scheme is in small letters. So `${NAME:-x}` of a shell is no reference, and `${name:-x}`, whose ":" is followed by
   an operator, is none either.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dagster_airbyte_proto.connection.faults import Fault, KeyPath
from dagster_airbyte_proto.connection.secrets.schemes import SchemeSources
from dagster_airbyte_proto.connection.secrets.secret_source import SecretContext
from dagster_airbyte_proto.errors import ConfigError, SecretStoreError

_START = r"\$\{(?P<scheme>[a-z][a-z0-9-]*):(?![-+=?])"
_REFERENCE = re.compile(rf"(?P<escape>\$?){_START}(?P<name>[^}}]*)(?P<end>\}}?)")
_UNESCAPED_START = re.compile(_START)


class FilledConfig(NamedTuple):
    """The config that the connector gets. `values` are what references were filled with, by `scheme:reference`."""

    config: dict[str, Any]
    values: Mapping[str, str]

    @property
    def secrets(self) -> frozenset[str]:
        return frozenset(self.values.values()) - {""}

    @property
    def digest(self) -> str:
        """A hash of the config that does not depend on the order of its keys."""
        text = json.dumps(self.config, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class KnownSecrets(NamedTuple):
    """The secrets of a config that could be filled, and an error's text for each store of secrets that is down."""

    values: frozenset[str]
    down: tuple[str, ...] = ()


def has_reference(text: str) -> bool:
    """True if the text holds a reference that is not escaped."""
    return first_scheme(text) is not None


def first_scheme(text: str) -> str | None:
    """Returns the scheme of the first reference that is not escaped."""
    return next((match["scheme"] for match in _REFERENCE.finditer(text) if not match["escape"]), None)


def schemes(value: Any) -> set[str]:
    """Returns the schemes of all references in the strings of a value."""
    found: set[str] = set()

    def note(text: str, _: KeyPath) -> str:
        found.update(match["scheme"] for match in _REFERENCE.finditer(text) if not match["escape"])
        return text

    map_strings(value, (), note)
    return found


def escaped(text: str) -> str:
    """Returns the text with each reference in it escaped, so that filling gives the text back."""
    return _UNESCAPED_START.sub(lambda match: f"${match[0]}", text)


def map_strings(value: Any, path: KeyPath, change: Callable[[str, KeyPath], str]) -> Any:
    """Applies a function to each string of a value, at any depth. Keys stay as they are."""
    if isinstance(value, str):
        return change(value, path)
    if isinstance(value, Mapping):
        return {key: map_strings(inner, (*path, key), change) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [map_strings(inner, (*path, number), change) for number, inner in enumerate(value)]
    return value


def restore_references(value: Any, written: Any, filled: Any) -> Any:
    """Puts references back into a config that was `filled`, so that it can be stored without secrets.

    The connector may have changed the config since. A reference is put back where the value is still the filled one. A
    list whose length changed is taken as it is.
    """
    return _where_referred(value, (written, filled), lambda each, texts: texts[0] if each == texts[1] else each)


def restore_values(value: Any, written: Any, filled: Any) -> Any:
    """The inverse of `restore_references`. Other text that looks like a reference is the connector's and stays."""
    return _where_referred(value, (written, filled), lambda each, texts: texts[1] if each == texts[0] else each)


def referenced_values(value: Any, written: Any) -> set[str]:
    """Returns the values of a config at the places where the user wrote references.

    They are secret, whoever changed them.
    """
    found: set[str] = set()

    def note(each: Any, _: tuple[Any, Any]) -> Any:
        found.update({each} if isinstance(each, str) else ())
        return each

    _where_referred(value, (written, written), note)
    return found - {""}


def _where_referred(value: Any, texts: tuple[Any, Any], changed: Callable[[Any, tuple[Any, Any]], Any]) -> Any:
    """Changes the value where the written config has a reference.

    `texts` are the config as written and as filled, which have the same structure. The value's may differ.
    """
    written, filled = texts
    if isinstance(written, str):
        return changed(value, texts) if has_reference(written) else value
    if isinstance(written, Mapping) and isinstance(value, Mapping):
        both = written.keys() & value.keys()
        return {**value, **{key: _where_referred(value[key], (written[key], filled[key]), changed) for key in both}}
    if isinstance(written, list | tuple) and isinstance(value, list | tuple) and len(value) == len(written):
        together = zip(value, written, filled, strict=True)
        return [_where_referred(each, (one, other), changed) for each, one, other in together]
    return value


class ReferenceFiller:
    """Fills the references of one config.

    `values` are those that were filled in, by `scheme:reference`, `faults` the references that could not be. Raises
    SecretStoreError where a store of secrets does not answer; with `may_be_down` it notes the error in `down`, by the
    scheme, and asks that store no more: each request may wait for a timeout.
    """

    def __init__(self, context: SecretContext, *, may_be_down: bool = False) -> None:
        self._sources = SchemeSources(context)
        self._may_be_down = may_be_down
        self.values: dict[str, str] = {}
        self.faults: list[Fault] = []
        self.down: dict[str, SecretStoreError] = {}

    @property
    def secrets(self) -> frozenset[str]:
        return frozenset(self.values.values()) - {""}

    def filled(self, value: Any, path: KeyPath) -> Any:
        """Returns the value with each reference in its strings filled."""
        return map_strings(value, path, self._filled_text)

    def _filled_text(self, text: str, path: KeyPath) -> str:
        return _REFERENCE.sub(lambda match: self._replacement(match, path), text)

    def _replacement(self, match: re.Match[str], path: KeyPath) -> str:
        if match["escape"]:
            return match[0][1:]
        scheme = match["scheme"]
        if not match["end"]:
            self.faults.append(Fault(path, f'a "${{{scheme}:" lacks its "}}"'))
            return ""
        if scheme in self.down:
            return ""
        try:
            value = self._sources.source(scheme).secret(match["name"])
        except ConfigError as error:
            self.faults.append(Fault(path, f"{error.found}. {error.remedy}" if error.remedy else error.found))
            return ""
        except SecretStoreError as error:
            if not self._may_be_down:
                raise
            self.down[scheme] = error
            return ""
        self.values[f"{scheme}:{match['name']}"] = value
        return value
