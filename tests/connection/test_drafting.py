"""Connection files that are written from a spec."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.connection.document import read_document
from dagster_airbyte_proto.connection.drafting.config_fields import Field, NoPrompter
from dagster_airbyte_proto.connection.drafting.connection_file import (
    Draft,
    DraftedConnector,
    FileHeader,
    PushedTable,
    draft,
)
from dagster_airbyte_proto.connection.yaml_text import yaml_text

_LOGIN = {
    "type": "object",
    "title": "Login",
    "order": 1,
    "oneOf": [
        {
            "title": "Token",
            "required": ["kind", "token"],
            "properties": {"kind": {"const": "token"}, "token": {"type": "string", "airbyte_secret": True}},
        },
        {
            "title": "Name",
            "required": ["kind", "user"],
            "properties": {"kind": {"const": "name"}, "user": {"type": "string"}, "port": {"type": "integer"}},
        },
    ],
}
_SPEC = {
    "type": "object",
    "required": ["url", "login", "mode", "pages"],
    "properties": {
        "url": {
            "type": "string",
            "title": "Where",
            "order": 0,
            "description": "The API.<br>See <a href='x'>its docs</a> &amp; more, if " + "very " * 30 + "long.",
            "examples": ["https://example.com"],
        },
        "login": _LOGIN,
        "mode": {"type": "string", "enum": ["fast", "slow"], "order": 2},
        "pages": {"type": "integer", "default": 10, "minimum": 1, "maximum": 99, "order": 3},
        "country": {"type": ["null", "string"], "title": "Country", "default": "NO"},
        "tunnel": {"allOf": [{"$ref": "#/definitions/tunnel"}, {"required": ["host"]}]},
    },
    "definitions": {
        "tunnel": {
            "type": "object",
            "title": "Tunnel",
            "properties": {
                "host": {"type": "string"},
                "key": {"type": "string", "airbyte_secret": True},
                "deep": {"$ref": "#/definitions/tunnel"},
            },
        }
    },
}


_OF_CONNECTOR = frozenset(("about", "writes_defaults"))


class _Answers:
    """Someone who knows; `asked` is what they were asked for."""

    def __init__(self, choice: int = 0, **values: Any) -> None:
        self._choice = choice
        self._values = values
        self.asked: list[str] = []

    def value(self, field: Field) -> Any:
        self.asked.append(field.title)
        return self._values.get(str(field.path[-1]))

    def choice(self, field: Field, titles: Sequence[str]) -> int:
        self.asked.append(f"{field.title}: {', '.join(titles)}")
        return self._choice


def _drafted(asker: Any = None, spec: Any = _SPEC, **heading: Any) -> Draft:
    launch = {"kind": "local", "command": ["source-x", "--path", "a b"]}
    connector = {"protocol": "airbyte", "launch": launch}
    words = {"writes_defaults": True, **{name: heading.pop(name) for name in _OF_CONNECTOR & heading.keys()}}
    header = FileHeader(**{"connection": "shop", "name": None, **heading})
    return draft(header, DraftedConnector(connector, spec, **words), asker or NoPrompter())


def _read(folder: Path, text: str) -> Connection:
    (folder / "shop.yaml").write_text(text)
    return Connection.from_file(folder / "shop.yaml")


def test_what_is_required_stands_there_and_secrets_come_from_the_environment(tmp_path: Path) -> None:
    made = _drafted()
    assert _read(tmp_path, made.text).config == {
        "url": None,
        "login": {"kind": "token", "token": "${env:SHOP_LOGIN_TOKEN}"},
        "mode": None,
        "pages": 10,
        "country": "NO",
    }
    assert (made.to_fill_in, made.variables) == (("url", "mode"), ("SHOP_LOGIN_TOKEN",))


def test_a_tap_fills_in_its_defaults_itself(tmp_path: Path) -> None:
    text = _drafted(writes_defaults=False).text
    assert "country" not in (_read(tmp_path, text).config or {})
    assert '\n  #country: "NO"  # Country\n' in text


def test_each_field_says_what_it_is(tmp_path: Path) -> None:
    lines = _drafted().text.splitlines()
    for comment in (
        '  # Where (text, required, for example "https://example.com")',
        "  # The API.",
        "  # mode (text, required, one of fast, slow)",
        "  # pages (a whole number, required, at least 1, at most 99, default 10)",
        '  country: "NO"  # Country',
        "    # token (text, required, secret)",
        "  #tunnel:  # Tunnel",
        "  url: null  # fill in",
    ):
        assert comment in lines
    assert any(line.startswith("  # See its docs & more, if very") for line in lines)
    assert max(map(len, lines)) <= 120


def test_what_is_optional_comes_to_life_by_taking_its_sign_away(tmp_path: Path) -> None:
    alive = re.sub(r"^( *)#(?!#| \S)(?=\S| +\w)", r"\1", _drafted().text.partition("# Country")[2], flags=re.M)
    found = read_document(_file(tmp_path, alive), what="file").data
    assert found["tunnel"] == {"host": ""}


def test_the_item_of_a_required_list_comes_to_life_below_its_key(tmp_path: Path) -> None:
    item = {"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}}
    spec = {"required": ["files"], "properties": {"files": {"type": "array", "items": item}}}
    made = _drafted(spec=spec)
    assert (_read(tmp_path, made.text).config, made.to_fill_in) == ({"files": None}, ("files",))
    alive = made.text.replace("  #- path", "  - path").replace("  #  ", "    ")
    assert _read(tmp_path, alive).config == {"files": [{"path": ""}]}


def _file(folder: Path, text: str) -> Path:
    path = folder / "part.yaml"
    path.write_text("\n".join(line.removeprefix("  ") for line in text.splitlines()[1:]))
    return path


def test_the_other_forms_of_a_choice_stand_there_as_comments(tmp_path: Path) -> None:
    chosen = _Answers(choice=1, url="u", mode="slow", user="me")
    made = _drafted(chosen)
    assert (_read(tmp_path, made.text).config or {})["login"] == {"kind": "name", "user": "me"}
    assert "  # Or Token:\n  #login:\n  #  # kind (required)\n  #  kind: token\n" in made.text
    assert "    #port: 0\n" in made.text
    assert (made.to_fill_in, made.variables) == ((), ())
    assert chosen.asked == ["Where", "Login: Token, Name", "user", "mode"]


def test_what_stands_beside_the_config(tmp_path: Path) -> None:
    made = _drafted(spec={}, name="shop", about="Shop: x", suggested_streams=["a b", "c"])
    assert made.to_fill_in == ("config",)
    assert made.steps({}) == ["to fill in if it needs any: config, without declared fields"]
    assert made.text == (
        "# Shop: x\n# The connector declares no config fields: see its documentation. "
        'Write secrets as "${env:NAME}".\nname: shop\nconnector:\n  protocol: airbyte\n'
        '  launch: {kind: local, command: [source-x, "--path", "a b"]}\n\nconfig: {}\n\n'
        "# Which streams are synced; without it all of them. The connector's authors suggest these:\n"
        '#streams: ["a b", c]\n'
    )
    assert _read(tmp_path, made.text).config == {}


@pytest.mark.parametrize(
    "spec",
    [
        {"properties": {"a": True, "b": {"type": "array"}, "c": {"oneOf": [{"type": "string"}, 1]}}, "required": "a"},
        {"properties": {"a": {"$ref": "#/nowhere"}, "b": {"$ref": 1, "title": 3, "enum": "x"}}, "required": ["a", "b"]},
        {
            "oneOf": [
                {"required": ["x"], "properties": {"x": {"type": "integer", "default": 1}}},
                {"properties": {"y": {}}},
            ]
        },
        {"properties": {"d": {"type": "object", "properties": {"e": {"type": "string"}}}}, "required": ["d"]},
    ],
)
def test_odd_specs_make_files_that_are_read(tmp_path: Path, spec: Any) -> None:
    assert _read(tmp_path, _drafted(spec=spec).text).name == "shop"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=50)
@given(_JSON)
@example([1e300, -5e-324, "1e3", "NO", "22:30", "- a", "\x85\u2028", "é: #"])
def test_a_value_is_read_back_as_it_was_by_us_and_by_others(
    tmp_path_factory: pytest.TempPathFactory, value: Any
) -> None:
    text = f"value: {yaml_text(value)}\n"
    path = tmp_path_factory.getbasetemp() / "value.yaml"
    path.write_text(text, encoding="utf-8")
    assert read_document(path, what="file").data == {"value": value}
    assert yaml.safe_load(text) == {"value": value}


def test_a_push_names_its_table_or_leaves_it_to_be_filled_in(tmp_path: Path) -> None:
    made = _drafted(spec={}, push=PushedTable("lake.shop.users", ("id", "day")))
    (stream,) = (_read(tmp_path, made.text).push or {}).items()
    assert (stream[0], stream[1].table, stream[1].key, made.to_fill_in) == (
        "users",
        "lake.shop.users",
        ("id", "day"),
        ("config",),
    )
    assert _drafted(spec={}, push=PushedTable()).to_fill_in == ("config", "push.shop.from", "push.shop.key")
    told: dict[str, Any] = {"from": "lake.users", "key": ["id"]}
    person = _Answers(0, **told)
    assert _drafted(person, spec={}, push=PushedTable()).to_fill_in == ("config",)
    assert person.asked == ["Table", "Key"]


def test_a_relay_has_the_fields_of_both_connectors(tmp_path: Path) -> None:
    launch = {"kind": "pypi", "package": "target-jsonl==0.1.4"}
    to = DraftedConnector({"protocol": "singer", "launch": launch}, _SPEC, writes_defaults=False)
    made = _drafted(to=to)
    relay = _read(tmp_path, made.text).to
    assert relay is not None and relay.connector.protocol == "singer"
    assert relay.config == {"url": None, "login": {"kind": "token", "token": "${env:SHOP_TO_LOGIN_TOKEN}"}} | {
        "mode": None,
        "pages": 10,
    }
    assert made.to_fill_in == ("url", "mode", "to.config.url", "to.config.mode")
    assert made.variables == ("SHOP_LOGIN_TOKEN", "SHOP_TO_LOGIN_TOKEN")
