"""Secret values do not leave: what they are (`secret_values`), and how text, bytes and JSON lose them (`Mask`).

A secret is looked for as it is, and as JSON, a URL or Python's repr would write it; a secret of several lines (a
private key) also line by line. Very short ones (a password "a1") stand in every other word, so they are masked
only where they are a whole JSON value. A masked number becomes the text "***", so that JSON stays JSON.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from dagster_airbyte_proto.references import schema_at

MASKED = "***"

_SHORT = 4
_SHORTEST_LINE = 8
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_SECRET_WORD = re.compile(r"key|secret|password|token|credential", re.IGNORECASE)


class Mask:
    """Takes secrets out. Masking bytes in pieces misses a secret that a cut goes through: give whole lines."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = frozenset(secrets) - {""}
        forms = {form for secret in self._secrets for form in _all_forms(secret)}
        # Whether a form is there at all is asked first: 540 MB/s, where the pattern does 15.
        self._forms = tuple(forms)
        self._form_bytes = tuple(form.encode("utf-8", "surrogatepass") for form in forms)
        pattern = "|".join(_patterns(self._secrets))
        self._text = re.compile(pattern)
        self._data = re.compile(pattern.encode("utf-8", "surrogatepass"))

    def also(self, secrets: Iterable[str]) -> "Mask":
        """A mask that takes these out too: a connector may get a new token while it runs."""
        return Mask(self._secrets | frozenset(secrets))

    def text(self, text: str) -> str:
        return MASKED if text in self._secrets else self._within(text)

    def data(self, data: bytes) -> bytes:
        if not any(form in data for form in self._form_bytes):
            return data
        return self._data.sub(lambda match: _replacement(match.lastgroup).encode(), data)

    def value(self, value: Any) -> Any:
        """A JSON value with its secrets masked, keys included; bytes and tuples are taken as text and lists."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self._within(str(key)): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        if isinstance(value, bytes):
            return self.data(value)
        return MASKED if _number_text(value) in self._secrets else value

    def _within(self, text: str) -> str:
        if not any(form in text for form in self._forms):
            return text
        return self._text.sub(lambda match: _replacement(match.lastgroup), text)


def secret_values(config: Any, spec_schema: Any) -> frozenset[str]:
    """Every value that the connector's spec marks `airbyte_secret`, as text; numbers as JSON writes them.

    All branches of a oneOf count, whether or not they fit. Where a secret is itself a JSON document (a service
    account), the keys and passwords in it are secrets of their own.
    """
    return frozenset(_Search(spec_schema).secrets(config, spec_schema, ())) - {""}


def named_secrets(config: Any) -> frozenset[str]:
    """Every text in a config whose name says that it is a secret."""
    if isinstance(config, list | tuple):
        return frozenset().union(*map(named_secrets, config))
    if not isinstance(config, Mapping):
        return frozenset()
    own = {item for key, item in config.items() if isinstance(item, str) and _SECRET_WORD.search(str(key))}
    return frozenset(own - {""}).union(*map(named_secrets, config.values()))


def _patterns(secrets: frozenset[str]) -> Iterator[str]:
    """Regexes, to be tried in this order: whole JSON numbers, then whole short strings, then the longest first."""
    numbers = _alternatives(secret for secret in secrets if _NUMBER.fullmatch(secret))
    if numbers:
        yield rf"(?P<number>(?:(?<=[:,\[])|(?<=[:,\[]\s))(?:{numbers})(?=\s*[,\]}}]))"
    short = _alternatives(form for secret in secrets if len(secret) < _SHORT for form in _all_forms(secret))
    if short:
        yield rf'(?<=")(?:{short})(?=\\*"(?!\s*:))'
    long = {form for secret in secrets if len(secret) >= _SHORT for form in _all_forms(secret)}
    digits = _alternatives(form for form in long if form.isdigit())
    if digits:
        # A PIN inside a longer number is not the PIN, and masking it there would break the number.
        yield rf"(?<![0-9])(?<![0-9]\.)(?:{digits})(?![0-9]|\.[0-9])"
    words = _alternatives(form for form in long if not form.isdigit())
    if words:
        yield f"(?:{words})"


def _alternatives(words: Iterable[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(set(words), key=lambda word: (-len(word), word)))


def _all_forms(secret: str) -> Iterator[str]:
    yield from _forms(secret)
    lines = [line.strip() for line in secret.splitlines()]
    for line in lines if len(lines) > 1 else []:
        if len(line) >= _SHORTEST_LINE and not line.startswith("-----"):
            yield from _forms(line)


def _forms(secret: str) -> Iterator[str]:
    """The ways in which others write the same text."""
    yield secret
    in_json = (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    yield from in_json
    yield from (re.sub(r"\\u[0-9a-f]{4}", lambda match: "\\u" + match[0][2:].upper(), form) for form in in_json)
    yield from (form.replace("/", r"\/") for form in in_json)
    yield from (json.dumps(form)[1:-1] for form in in_json)  # JSON in a string of JSON: a log line's message
    yield repr(secret)[1:-1]
    encoded = secret.encode("utf-8", "surrogatepass")
    in_url = (quote(encoded, safe=""), quote(encoded, safe="/"), quote_plus(encoded))
    yield from in_url
    yield from (re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), form) for form in in_url)


def _replacement(group: str | None) -> str:
    return f'"{MASKED}"' if group == "number" else MASKED


def _number_text(value: object) -> str | None:
    return json.dumps(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


class _Search:
    """One walk over a config beside its schema."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def secrets(self, value: Any, schema: Any, references: tuple[str, ...]) -> Iterator[str]:
        if not isinstance(schema, Mapping):
            return
        if schema.get("airbyte_secret") is True:
            yield from _texts(value)
        for also in self._for_the_same(schema):
            yield from self.secrets(value, also, references)
        reference = schema.get("$ref")
        # References only pile up while the value stays the same: a schema that refers to itself ends here.
        if isinstance(reference, str) and reference not in references:
            yield from self.secrets(value, schema_at(self._root, reference), (*references, reference))
        if isinstance(value, Mapping):
            for key, item in value.items():
                for inner in self._for_key(schema, key):
                    yield from self.secrets(item, inner, ())
        elif isinstance(value, list | tuple):
            for number, item in enumerate(value):
                for inner in self._for_item(schema, number):
                    yield from self.secrets(item, inner, ())

    def _for_the_same(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        for keyword in ("oneOf", "anyOf", "allOf"):
            branches = schema.get(keyword)
            yield from branches if isinstance(branches, list) else ()
        yield from (schema.get(keyword) for keyword in ("if", "then", "else"))
        dependencies = schema.get("dependencies")
        yield from dependencies.values() if isinstance(dependencies, Mapping) else ()

    def _for_key(self, schema: Mapping[str, Any], key: object) -> Iterator[Any]:
        properties, patterns = schema.get("properties"), schema.get("patternProperties")
        if isinstance(properties, Mapping):
            yield properties.get(key)
        # Which pattern fits is not asked: masking too much is the safe side.
        yield from patterns.values() if isinstance(patterns, Mapping) else ()
        yield schema.get("additionalProperties")

    def _for_item(self, schema: Mapping[str, Any], number: int) -> Iterator[Any]:
        items = schema.get("items")
        if isinstance(items, list):
            yield items[number] if number < len(items) else schema.get("additionalItems")
        else:
            yield items


def _texts(value: Any) -> Iterator[str]:
    """The texts below a secret value, without true, false and null: masking every `true` would spoil all else."""
    if isinstance(value, str):
        yield value
        yield from _inner_secrets(value)
    elif isinstance(value, Mapping):
        yield from (text for item in value.values() for text in _texts(item))
    elif isinstance(value, list | tuple):
        yield from (text for item in value for text in _texts(item))
    else:
        yield from filter(None, (_number_text(value),))


def _inner_secrets(text: str) -> Iterator[str]:
    try:
        document = json.loads(text) if text.lstrip().startswith("{") else {}
    except (ValueError, RecursionError):
        return
    for key, item in document.items():
        if isinstance(item, str) and _SECRET_WORD.search(key) and len(item) >= _SHORTEST_LINE:
            yield item
