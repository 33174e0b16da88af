"""Drafts the config of a connection from its connector's spec, with a comment on every field.

- Required fields are written out, with all that the spec says of them.
- Optional fields take a line each. They are commented out: the user removes the `#` to set one. Those with a default
  are written with it, if the protocol leaves that to its users.
- A comment for people has a space after its `#`; a field that is commented out has none.
- A secret is never written, only the environment variable that holds it.
"""

import html
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from dagster_airbyte_proto.connection.faults import KeyPath, path_text, type_words
from dagster_airbyte_proto.connection.yaml_text import yaml_text
from dagster_airbyte_proto.json_references import branches_in, names_in, referenced_schema

_FILL_IN = "fill in"
_WIDTH = 110
_LINE_WIDTH = 120
_SHORTEST_SUMMARY = 12
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
    """A field of a config, as the spec declares it. References and `allOf` in `schema` are resolved."""

    path: KeyPath
    schema: Schema
    required: bool

    @property
    def title(self) -> str:
        return _plain_text(self.schema.get("title")) or str(self.path[-1])

    @property
    def description(self) -> str:
        return _plain_text(self.schema.get("description"))

    @property
    def types(self) -> list[str]:
        return [name for name in names_in(self.schema.get("type")) if name != "null"]

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


class Prompter(Protocol):
    """Supplies the values that a spec leaves open."""

    def value(self, field: Field) -> Any:
        """Returns the value of a required field that has no default. None leaves it to be filled in later."""
        ...

    def choice(self, field: Field, titles: Sequence[str]) -> int:
        """Returns the index of the form that a required field takes, out of several."""
        ...


class NoPrompter:
    """Leaves every value to be filled in later, and takes the first form of each field."""

    def value(self, field: Field) -> Any:  # noqa: ARG002 - no answer depends on it
        return None

    def choice(self, field: Field, titles: Sequence[str]) -> int:  # noqa: ARG002 - likewise
        return 0


class ConfigWriter:
    """Writes the lines of a spec's fields. Each method returns unindented lines, and its caller indents them.

    Airbyte's own platform writes the defaults of a spec into each config, and some connectors fail without them:
    `writes_defaults` does the same. A tap fills in its defaults itself.
    """

    def __init__(self, secrets_prefix: str, root: Schema, prompter: Prompter, *, writes_defaults: bool) -> None:
        self._secrets_prefix = secrets_prefix
        self._writes_defaults = writes_defaults
        self._root = root
        self._prompter = prompter
        self.to_fill_in: list[str] = []
        self.variables: list[str] = []

    def lines(self, schema: Schema) -> list[str]:
        forms = self._forms(Field(("config",), self._resolved(schema), required=True))
        fields = [field for form in forms[:1] for field in self._declared(form, ())]
        blocks = [self._block(field, is_active=True) for field in fields if field.required]
        blocks.append([line for field in fields if not field.required for line in self._block(field, is_active=True)])
        if len(forms) > 1:
            blocks.append(list(comment("It may have another form as a whole: see `airbyte-proto spec`.")))
        return [line for block in blocks if block for line in ("", *block)][1:]

    def _declared(self, schema: Schema, path: KeyPath) -> list[Field]:
        """Returns the fields, required ones first, in the order that the spec sets or else that of its properties."""
        resolved = self._resolved(schema)
        names = names_in(resolved.get("required"))
        found = [
            Field((*path, name), self._resolved(rule), name in names)
            for name, rule in _mapping(resolved.get("properties")).items()
            if isinstance(rule, Mapping) and len(path) < _DEEPEST
        ]
        return sorted(found, key=lambda field: (not field.required, _order(field.schema)))

    def _block(self, field: Field, *, is_active: bool) -> list[str]:
        """Returns the field with its comments: of a required field all of them, of an optional one a line."""
        if field.required:
            return [*comment(_description(field)), *self._field_lines(field, is_active=is_active)]
        forms = self._forms(field)
        key = yaml_text(str(field.path[-1]))
        if forms:
            members = [line for each in self._declared(forms[0], field.path) for line in self._member(each)]
            return _commented_out([_with_summary(f"{key}:", field), *(f"  {line}" for line in members)])
        line = _with_summary(f"{key}: {yaml_text(self._value(field, is_active=False))}", field)
        takes_default = is_active and self._writes_defaults and _has_plain_default(field)
        return [line] if takes_default or "const" in field.schema else _commented_out([line])

    def _member(self, field: Field) -> list[str]:
        """Returns the line of a member of an optional mapping. What is deeper is left to `airbyte-proto spec`."""
        value = {} if self._forms(field) else self._value(field, is_active=False)
        line = _with_summary(f"{yaml_text(str(field.path[-1]))}: {yaml_text(value)}", field)
        return [line] if field.required or "const" in field.schema else _commented_out([line])

    def _item(self, field: Field) -> Iterator[str]:
        """Yields an item of a list of mappings, commented out."""
        items = Field((*field.path, 0), self._resolved(field.schema.get("items")), required=True)
        members = [
            line
            for form in self._forms(items)[:1]
            for each in self._declared(form, items.path)
            for line in self._member(each)
        ]
        yield from _commented_out([f"{'  ' if number else '- '}{line}" for number, line in enumerate(members)])

    def _field_lines(self, field: Field, *, is_active: bool) -> Iterator[str]:
        key = yaml_text(str(field.path[-1]))
        forms = self._forms(field)
        if not forms:
            value = self._value(field, is_active=is_active)
            is_open = is_active and value is None
            item = list(self._item(field)) if is_open else []
            if item:  # A key with a value could have no item below it.
                yield f"{key}:  # {_FILL_IN}: take the # away below"
                yield from item
            else:
                yield f"{key}: {yaml_text(value)}" + (f"  # {_FILL_IN}" if is_open else "")
            return
        titles = [_plain_text(form.get("title")) or f"form {number}" for number, form in enumerate(forms, start=1)]
        chosen = self._prompter.choice(field, titles) if is_active and len(forms) > 1 else 0
        if len(forms) > 1:
            yield from comment(f"{titles[chosen]}:")
        yield from self._nested(key, field, forms[chosen], is_active=is_active)
        for number, form in enumerate(forms):
            if number != chosen:
                yield from comment(f"Or {titles[number]}:")
                yield from _commented_out(list(self._nested(key, field, form, is_active=False)))

    def _nested(self, key: str, field: Field, form: Schema, *, is_active: bool) -> Iterator[str]:
        inner = [line for each in self._declared(form, field.path) for line in self._block(each, is_active=is_active)]
        has_members = any(line and not line.startswith("#") for line in inner)
        yield f"{key}:" if has_members or not is_active else f"{key}: {{}}"
        yield from (f"  {line}" for line in inner)

    def _forms(self, field: Field) -> list[Schema]:
        """Returns the schemas of a mapping that is written field by field: several if there is a choice."""
        own = _mapping(field.schema.get("properties"))
        branches = [each for name in ("oneOf", "anyOf") for each in branches_in(field.schema.get(name))]
        resolved = [self._resolved(each) for each in branches]
        with_fields = [each for each in resolved if _mapping(each.get("properties"))]
        if not with_fields:
            return [field.schema] if own else []
        own_required = names_in(field.schema.get("required"))
        return [
            {
                **each,
                "properties": {**own, **_mapping(each["properties"])},
                "required": [*own_required, *names_in(each.get("required"))],
            }
            for each in with_fields
        ]

    def _value(self, field: Field, *, is_active: bool) -> Any:
        if field.is_secret and field.types in (["string"], []):
            return self._secret(field, is_active=is_active)
        if len(field.allowed) == 1:
            return field.allowed[0]
        if field.schema.get("default") is not None and not field.is_secret:
            return field.schema["default"]
        if not is_active:
            return _blank(field)
        answer = None if field.is_secret else self._prompter.value(field)
        if answer is None:
            self.to_fill_in.append(path_text(field.path))
        return answer

    def _secret(self, field: Field, *, is_active: bool) -> str:
        words = "_".join([self._secrets_prefix, *map(str, field.path)])
        name = re.sub("[^A-Z0-9_]", "_", words.upper())
        name = f"_{name}" if name[0].isdigit() else name
        if is_active:
            self.variables.append(name)
        return f"${{env:{name}}}"

    def _resolved(self, schema: Any, depth: int = 0) -> dict[str, Any]:
        """Returns the schema with its references and its `allOf` merged in."""
        if not isinstance(schema, Mapping) or depth > _DEEPEST:
            return {}
        parts = [referenced_schema(self._root, schema["$ref"])] if isinstance(schema.get("$ref"), str) else []
        more = schema.get("allOf")
        parts += more if isinstance(more, list) else []
        resolved: dict[str, Any] = {}
        for part in (*(self._resolved(part, depth + 1) for part in parts), schema):
            properties = {**_mapping(resolved.get("properties")), **_mapping(part.get("properties"))}
            required = [*names_in(resolved.get("required")), *names_in(part.get("required"))]
            resolved |= {key: value for key, value in part.items() if key not in ("$ref", "allOf")}
            resolved |= {"properties": properties} if properties else {}
            resolved |= {"required": required} if required else {}
        return resolved


def _description(field: Field) -> str:
    """Describes a required field: `Count (a whole number, required, at least 1)`, and the spec's description."""
    facts = [
        type_words(field.types) if field.types else "",
        "required",
        "secret" if field.is_secret else "",
        f"one of {', '.join(map(yaml_text, field.allowed))}" if len(field.allowed) > 1 else "",
        *(f"{words} {field.schema[key]}" for key, words in _LIMITS.items() if key in field.schema),
        f"default {yaml_text(field.schema['default'])}" if _has_plain_default(field) else "",
        f"for example {yaml_text(field.example)}" if field.example is not None and not field.is_secret else "",
    ]
    return f"{field.title} ({', '.join(filter(None, facts))})\n{field.description}"


def _with_summary(line: str, field: Field) -> str:
    """Adds the choices and the first sentence about an optional field, as far as they fit on the line."""
    first_line = re.sub("^Optional[.:] *", "", field.description.partition("\n")[0])
    words = re.split(r"(?<=[a-z)'\"])(?<!e\.g)(?<!i\.e)\.(?:\s|$)|(?<=\?) ", first_line, maxsplit=1)[0]
    choices = f"one of {', '.join(map(yaml_text, field.allowed))}" if len(field.allowed) > 1 else ""
    title = "" if words or field.title == field.path[-1] else field.title
    summary = ": ".join(filter(None, (choices, words or title)))
    room = _LINE_WIDTH - len(line) - 4 - 2 * len(field.path)
    if not summary or room < _SHORTEST_SUMMARY:
        return line
    return f"{line}  # {textwrap.shorten(summary, room, placeholder='…')}"


def _has_plain_default(field: Field) -> bool:
    return field.schema.get("default") is not None and not field.is_secret and len(field.allowed) != 1


def _blank(field: Field) -> Any:
    if field.example is not None:
        return field.example
    return field.allowed[0] if field.allowed else _BLANK.get(field.types[0] if field.types else "string", "")


def comment(text: str) -> Iterator[str]:
    for line in text.splitlines():
        line = "".join(letter for letter in line if letter.isprintable())
        yield from (f"# {part}" for part in textwrap.wrap(line, _WIDTH, break_long_words=False, break_on_hyphens=False))


def _commented_out(lines: Sequence[str]) -> list[str]:
    """Comments lines out. A line for people is a comment already."""
    return [line if line.startswith("# ") else f"#{line}" for line in lines]


def _plain_text(text: Any) -> str:
    """Returns a spec's text without HTML tags and control characters."""
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
