"""A connection file written from a connector's spec, every field of it with a comment.

What has to be given stands there, what may be given stands there as a comment: a field is brought to life by taking
away its `#`, and words for a person have a space after theirs. A secret is never written, only where it comes from.
"""

import html
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from dagster_airbyte_proto.connection.faults import KeyPath, path_text, type_words
from dagster_airbyte_proto.connection.yaml_text import yaml_text
from dagster_airbyte_proto.references import schema_at

_TOLD = "Fields that begin with # are optional: take it away to set one. Secrets come from the environment."
_UNTOLD = 'The connector does not tell what it takes: see its documentation. Write secrets as "${env:NAME}".'
_WIDTH = 110
_DEEPEST = 12
_BLANK = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}
_LIMITS = {
    "minimum": "at least",
    "maximum": "at most",
    "minLength": "characters at least",
    "minItems": "items at least",
}
_LAST = 1 << 30

Schema = Mapping[str, Any]


class Field(NamedTuple):
    """A field of a config, as the spec has it. References and `allOf` are gone from `schema`."""

    path: KeyPath
    schema: Schema
    required: bool

    @property
    def title(self) -> str:
        return _words(self.schema.get("title")) or str(self.path[-1])

    @property
    def description(self) -> str:
        return _words(self.schema.get("description"))

    @property
    def types(self) -> list[str]:
        written = self.schema.get("type", [])
        names = [written] if isinstance(written, str) else list(written)
        return [name for name in names if isinstance(name, str) and name != "null"]

    @property
    def allowed(self) -> list[Any]:
        if "const" in self.schema:
            return [self.schema["const"]]
        allowed = self.schema.get("enum")
        return list(allowed) if isinstance(allowed, list) else []

    @property
    def is_secret(self) -> bool:
        return self.schema.get("airbyte_secret") is True

    @property
    def example(self) -> Any:
        found = self.schema.get("examples")
        return found[0] if isinstance(found, list) and found else found if isinstance(found, str) else None


class Asker(Protocol):
    """Who knows what a spec leaves open."""

    def value(self, field: Field) -> Any:
        """For a field that is required and has no default; None leaves it to be filled in later."""
        ...

    def choice(self, field: Field, titles: Sequence[str]) -> int:
        """Which of the forms of a required field it has."""
        ...


class AskNobody:
    def value(self, field: Field) -> Any:  # noqa: ARG002 - there is no one to ask
        return None

    def choice(self, field: Field, titles: Sequence[str]) -> int:  # noqa: ARG002 - likewise
        return 0


class Draft(NamedTuple):
    """`to_fill_in` are the fields that stand there without a value, `variables` where its secrets come from."""

    text: str
    to_fill_in: tuple[str, ...]
    variables: tuple[str, ...]


class Heading(NamedTuple):
    """What stands in the file beside the config. `name` where the file's own is another one."""

    connection: str
    name: str | None
    connector: Mapping[str, Any]
    about: str = ""
    suggested_streams: Sequence[str] = ()


def draft(heading: Heading, spec_schema: Schema, asker: Asker) -> Draft:
    """The whole file. Where there is no schema, all of the config is left to fill in."""
    drawing = _Drawing(heading.connection, spec_schema, asker)
    fields = drawing.lines(spec_schema)
    if not spec_schema:
        drawing.to_fill_in.append("config")
    lines = [
        *_comment(f"{heading.about}\n{_TOLD if spec_schema else _UNTOLD}"),
        *([f"name: {heading.name}"] if heading.name else []),
        "connector:",
        *(f"  {key}: {yaml_text(value)}" for key, value in heading.connector.items()),
        "",
        "config:" if fields else "config: {}",
        *(f"  {line}" if line else "" for line in fields),
        "",
        *_comment("Which streams are synced; without it all of them. The connector's authors suggest these:"),
        f"#streams: {yaml_text(list(heading.suggested_streams))}",
    ]
    if not heading.suggested_streams:
        lines = lines[:-3]
    return Draft("\n".join(lines) + "\n", tuple(drawing.to_fill_in), tuple(dict.fromkeys(drawing.variables)))


class _Drawing:
    """One pass over a spec. Each line of a field is at the field's own depth; who holds it moves it in."""

    def __init__(self, connection: str, root: Schema, asker: Asker) -> None:
        self._connection = connection
        self._root = root
        self._asker = asker
        self.to_fill_in: list[str] = []
        self.variables: list[str] = []

    def lines(self, schema: Schema) -> list[str]:
        forms = self._forms(Field(("config",), self._whole(schema), required=True))
        blocks = [self._block(field, alive=True) for form in forms[:1] for field in self._fields(form, ())]
        if len(forms) > 1:
            blocks.append(list(_comment("It may have another form as a whole: see `airbyte-proto spec`.")))
        return [line for block in blocks for line in ("", *block)][1:]

    def _fields(self, schema: Schema, path: KeyPath) -> list[Field]:
        """In the order that the spec says, or in its own."""
        whole = self._whole(schema)
        required = whole.get("required")
        names = required if isinstance(required, list) else []
        found = [
            Field((*path, name), self._whole(rule), name in names)
            for name, rule in _mapping(whole.get("properties")).items()
            if isinstance(rule, Mapping) and len(path) < _DEEPEST
        ]
        return sorted(found, key=lambda field: _order(field.schema))

    def _block(self, field: Field, *, alive: bool) -> list[str]:
        """The field with its comments; as a comment itself where nobody has to give it."""
        written = list(self._written(field, alive=alive and field.required))
        told = list(_comment(_about(field)))
        return [*told, *(written if field.required else _muted(written))]

    def _written(self, field: Field, *, alive: bool) -> Iterator[str]:
        key = yaml_text(str(field.path[-1]))
        forms = self._forms(field)
        if not forms:
            yield f"{key}: {yaml_text(self._value(field, alive=alive))}"
            return
        titles = [_words(form.get("title")) or f"form {number}" for number, form in enumerate(forms, start=1)]
        chosen = self._asker.choice(field, titles) if alive and len(forms) > 1 else 0
        if len(forms) > 1:
            yield from _comment(f"{titles[chosen]}:")
        yield from self._nested(key, field, forms[chosen], alive=alive)
        for number, form in enumerate(forms):
            if number != chosen:
                yield from _comment(f"Or {titles[number]}:")
                yield from _muted(list(self._nested(key, field, form, alive=False)))

    def _nested(self, key: str, field: Field, form: Schema, *, alive: bool) -> Iterator[str]:
        inner = [line for each in self._fields(form, field.path) for line in self._block(each, alive=alive)]
        has_members = any(line and not line.startswith("#") for line in inner)
        yield f"{key}:" if has_members or not alive else f"{key}: {{}}"
        yield from (f"  {line}" for line in inner)

    def _forms(self, field: Field) -> list[Schema]:
        """The schemas of a mapping that is written field by field: several where there is a choice."""
        own = _mapping(field.schema.get("properties"))
        branches = [
            each for name in ("oneOf", "anyOf") for each in field.schema.get(name) or () if isinstance(each, Mapping)
        ]
        whole = [self._whole(each) for each in branches]
        with_fields = [each for each in whole if _mapping(each.get("properties"))]
        if not with_fields:
            return [field.schema] if own else []
        own_required = field.schema.get("required") or []
        return [
            {
                **each,
                "properties": {**own, **_mapping(each["properties"])},
                "required": [*own_required, *(each.get("required") or ())],
            }
            for each in with_fields
        ]

    def _value(self, field: Field, *, alive: bool) -> Any:
        if field.is_secret and field.types in (["string"], []):
            return self._secret(field, alive=alive)
        if len(field.allowed) == 1:
            return field.allowed[0]
        if field.schema.get("default") is not None and not field.is_secret:
            return field.schema["default"]
        if not alive:
            return _blank(field)
        answer = None if field.is_secret else self._asker.value(field)
        if answer is None:
            self.to_fill_in.append(path_text(field.path))
        return answer

    def _secret(self, field: Field, *, alive: bool) -> str:
        words = "_".join([self._connection, *map(str, field.path)])
        name = re.sub("[^A-Z0-9_]", "_", words.upper())
        name = f"_{name}" if name[0].isdigit() else name
        if alive:
            self.variables.append(name)
        return f"${{env:{name}}}"

    def _whole(self, schema: Any, depth: int = 0) -> dict[str, Any]:
        """The schema with what it refers to, and with all that `allOf` adds."""
        if not isinstance(schema, Mapping) or depth > _DEEPEST:
            return {}
        parts = [schema_at(self._root, schema["$ref"])] if isinstance(schema.get("$ref"), str) else []
        more = schema.get("allOf")
        parts += more if isinstance(more, list) else []
        whole: dict[str, Any] = {}
        for part in (*(self._whole(part, depth + 1) for part in parts), schema):
            properties = {**_mapping(whole.get("properties")), **_mapping(part.get("properties"))}
            required = [*(whole.get("required") or ()), *(part.get("required") or ())]
            whole |= {key: value for key, value in part.items() if key not in ("$ref", "allOf")}
            whole |= {"properties": properties} if properties else {}
            whole |= {"required": required} if required else {}
        return whole


def _about(field: Field) -> str:
    """`Count (a whole number, required, at least 1)`, and what the spec says of it."""
    facts = [
        type_words(field.types) if field.types else "",
        "required" if field.required else "optional",
        "secret" if field.is_secret else "",
        f"one of {', '.join(map(yaml_text, field.allowed))}" if len(field.allowed) > 1 else "",
        *(f"{words} {field.schema[key]}" for key, words in _LIMITS.items() if key in field.schema),
        f"default {yaml_text(field.schema['default'])}" if _has_plain_default(field) else "",
        f"for example {yaml_text(field.example)}" if field.example is not None and not field.is_secret else "",
    ]
    return f"{field.title} ({', '.join(filter(None, facts))})\n{field.description}"


def _has_plain_default(field: Field) -> bool:
    return field.schema.get("default") is not None and not field.is_secret and len(field.allowed) != 1


def _blank(field: Field) -> Any:
    if field.example is not None:
        return field.example
    return field.allowed[0] if field.allowed else _BLANK.get(field.types[0] if field.types else "string", "")


def _comment(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield from (f"# {part}" for part in textwrap.wrap(line, _WIDTH, break_long_words=False, break_on_hyphens=False))


def _muted(lines: Sequence[str]) -> list[str]:
    """Without their life. What is a comment on the whole of it is one already."""
    return [line if line.startswith("# ") else f"#{line}" for line in lines]


def _words(text: Any) -> str:
    """A spec's text as a person reads it: no tags, no control characters."""
    if not isinstance(text, str):
        return ""
    broken = re.sub(r"<br\s*/?>|</(?:p|li|ul|ol)>", "\n", text, flags=re.IGNORECASE)
    plain = html.unescape(re.sub(r"</?[A-Za-z][^<>]*>", "", broken))
    lines = (" ".join(line.split()) for line in plain.splitlines())
    return "\n".join("".join(letter for letter in line if letter.isprintable()) for line in lines if line)


def _order(schema: Schema) -> float:
    order = schema.get("order")
    return order if isinstance(order, int | float) else _LAST


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
