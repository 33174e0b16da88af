"""Keeps secret values out of logs and files: `secret_values` finds them in a config, `Mask` removes them from text,
bytes and JSON.

- A secret is searched as it is, and in the forms of JSON, a URL and Python's repr. A secret of several lines (a private
  key) is also searched line by line, and one that is a URL also by its password and by its words that look random: an
  HTTP client names host and path apart.
- A very short secret (a password "a1") is a part of many other words, so it is masked only where it is a whole JSON
  value.
- A masked number becomes the text "***", so that JSON stays JSON.
- A text of a connector that may be kept, reported or shown is no `str` until `Mask.text` has made it one.
- A text that is not masked yet is cut by `cut_text` alone: a secret that is cut in two is not found.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, quote_plus, unquote, urlsplit

from dagster_airbyte_proto.json_references import referenced_schema

MASKED = "***"

_SHORT = 4
_SHORTEST_LINE = 8
_SHORTEST_RANDOM = 16
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_SECRET_WORD = re.compile(r"key|secret|passw|passphrase|token|credential", re.IGNORECASE)
_LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_LAST_WORD = re.compile(r"""[\s"'][^\s"']*\Z""")


@dataclass(frozen=True, slots=True)
class UnmaskedText:
    """A text of a connector, which may have secrets in it. `Mask.text` returns it without them.

    It is no `str`, so that mypy finds every way on which it would be kept with its secrets. Whoever formats it all the
    same gets `***`. Only protocols and launchers, which make such texts, read `unmasked`.
    """

    unmasked: str = ""

    def __bool__(self) -> bool:
        return bool(self.unmasked)

    def __repr__(self) -> str:
        return MASKED

    __str__ = __repr__


class Mask:
    """Replaces secrets by `***`. Pass whole lines: a secret that is cut in two is not found."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = frozenset(secrets) - {""}
        forms = {form for secret in self._secrets for form in _all_forms(secret)}
        # A plain search for each form runs before the pattern: 540 MB/s, where the pattern reaches 15.
        self._forms = tuple(forms)
        self._form_bytes = tuple(form.encode("utf-8", "surrogatepass") for form in forms)
        pattern = "|".join(_patterns(self._secrets))
        self._text = re.compile(pattern)
        self._data = re.compile(pattern.encode("utf-8", "surrogatepass"))

    def extended(self, secrets: Iterable[str]) -> "Mask":
        """Returns a mask for these secrets too: a connector may get a new token while it runs."""
        return Mask(self._secrets | frozenset(secrets))

    def text(self, text: str | UnmaskedText) -> str:
        if isinstance(text, UnmaskedText):
            text = text.unmasked
        return MASKED if text in self._secrets else self._masked(text)

    def data(self, data: bytes) -> bytes:
        if not any(form in data for form in self._form_bytes):
            return data
        return self._data.sub(lambda match: _replacement(match.lastgroup).encode(), data)

    def value(self, value: Any) -> Any:
        """Returns a JSON value with its secrets masked, keys included.

        Bytes are masked like text, and tuples become lists.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self._masked(str(key)): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        if isinstance(value, bytes):
            return self.data(value)
        return value if self._secrets.isdisjoint(_number_texts(value)) else MASKED

    def _masked(self, text: str) -> str:
        if not any(form in text for form in self._forms):
            return text
        return self._text.sub(lambda match: _replacement(match.lastgroup), text)


def cut_text(text: str, max_characters: int) -> str:
    """Returns the beginning of a text, which need not be masked yet: it ends before the word that would be cut."""
    if len(text) <= max_characters:
        return text
    head = text[:max_characters]
    last = _LAST_WORD.search(head)
    return f"{head[: last.start()] if last else ''} (cut)"


def without_logins(text: str) -> str:
    """Returns the text without the users and passwords in its URLs."""
    return _LOGIN.sub(MASKED, text)


def secret_values(config: Any, spec_schema: Any) -> frozenset[str]:
    """Returns every value that the connector's spec marks `airbyte_secret`, as text. Numbers have their JSON form.

    All branches of a oneOf count, whether or not they match. If a secret is a JSON document itself (a service account),
    the keys and passwords in it are secrets too.
    """
    return frozenset(_SecretSearch(spec_schema).secrets(config, spec_schema, ())) - {""}


def config_secrets(config: Any, spec_schema: Any) -> frozenset[str]:
    """Returns the secrets of a connector's config: those that its spec marks, else those whose keys suggest it.

    Syncmaven's specs can mark none, and those of many others do not. Short texts are left out then: a key such as
    `primary_key` suggests a secret too, and its value is in every other line of a log.
    """
    named = (each for each in named_secrets(config) if len(each) >= _SHORTEST_LINE)
    return secret_values(config, spec_schema) or frozenset(named)


def named_secrets(config: Any) -> frozenset[str]:
    """Returns every text in a config whose key suggests a secret, and the passwords in its URLs."""
    if isinstance(config, str):
        return frozenset(_passwords(config))
    if isinstance(config, list | tuple):
        return frozenset().union(*map(named_secrets, config))
    if not isinstance(config, Mapping):
        return frozenset()
    own = {item for key, item in config.items() if isinstance(item, str) and _SECRET_WORD.search(str(key))}
    return frozenset(own - {""}).union(*map(named_secrets, config.values()))


def _patterns(secrets: frozenset[str]) -> Iterator[str]:
    """Yields regexes in the order to try them: whole JSON numbers, whole short strings, then the longest first."""
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
    parts = [line for line in lines if len(lines) > 1 and not line.startswith("-----")]
    for part in (*parts, *_secrets_in_url(secret)):
        if len(part) >= _SHORTEST_LINE:
            yield from _forms(part)


def _secrets_in_url(text: str) -> Iterator[str]:
    """Yields the secret parts of a URL that is a secret as a whole: its password, and in its path and query each word
    that looks random. In the query the name of a word may suggest a secret too."""
    yield from _passwords(text)
    if (url := _as_url(text)) is None:
        return
    query = parse_qsl(url.query)
    yield from (word for name, word in query if _SECRET_WORD.search(name))
    words = (url.username or "", *map(unquote, url.path.split("/")), *(word for _, word in query))
    yield from (word for word in words if len(word) >= _SHORTEST_RANDOM and re.search("[0-9]", word))


def _passwords(text: str) -> Iterator[str]:
    """Yields the password in a URL, as it is written and as it is meant."""
    url = _as_url(text)
    if url is not None and url.password:
        yield from {url.password, unquote(url.password)}


def _as_url(text: str) -> SplitResult | None:
    try:
        return urlsplit(text) if "://" in text and len(text.split()) == 1 else None
    except ValueError:  # A bracket that does not end, or letters that no host has.
        return None


def _forms(secret: str) -> Iterator[str]:
    """Yields the forms in which other programs write the same text."""
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


def _number_texts(value: object) -> Iterator[str]:
    """Yields the forms in which a number may be among the secrets. A Decimal has more digits than a float."""
    number = _number_text(float(value) if isinstance(value, Decimal) else value)
    yield from filter(None, (number, str(value) if isinstance(value, Decimal) else None))


class _SecretSearch:
    """Walks a config and its schema together."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def secrets(self, value: Any, schema: Any, references: tuple[str, ...]) -> Iterator[str]:
        if not isinstance(schema, Mapping):
            return
        if schema.get("airbyte_secret") is True:
            yield from _texts(value)
        for applicable in self._schemas_of_same_value(schema):
            yield from self.secrets(value, applicable, references)
        reference = schema.get("$ref")
        # `references` grows only while the value stays the same, so a schema that refers to itself ends here.
        if isinstance(reference, str) and reference not in references:
            yield from self.secrets(value, referenced_schema(self._root, reference), (*references, reference))
        if isinstance(value, Mapping):
            for key, item in value.items():
                for inner in self._schemas_of_key(schema, key):
                    yield from self.secrets(item, inner, ())
        elif isinstance(value, list | tuple):
            for number, item in enumerate(value):
                for inner in self._schemas_of_item(schema, number):
                    yield from self.secrets(item, inner, ())

    def _schemas_of_same_value(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        for keyword in ("oneOf", "anyOf", "allOf"):
            branches = schema.get(keyword)
            yield from branches if isinstance(branches, list) else ()
        yield from (schema.get(keyword) for keyword in ("if", "then", "else"))
        dependencies = schema.get("dependencies")
        yield from dependencies.values() if isinstance(dependencies, Mapping) else ()

    def _schemas_of_key(self, schema: Mapping[str, Any], key: object) -> Iterator[Any]:
        properties, patterns = schema.get("properties"), schema.get("patternProperties")
        if isinstance(properties, Mapping):
            yield properties.get(key)
        # Every pattern counts, matching or not: masking too much is the safe side.
        yield from patterns.values() if isinstance(patterns, Mapping) else ()
        yield schema.get("additionalProperties")

    def _schemas_of_item(self, schema: Mapping[str, Any], number: int) -> Iterator[Any]:
        items = schema.get("items")
        if isinstance(items, list):
            yield items[number] if number < len(items) else schema.get("additionalItems")
        else:
            yield items


def _texts(value: Any) -> Iterator[str]:
    """Yields the texts in a secret value, without true, false and null: masking each `true` would ruin other output."""
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
