"""No secret leaves, in whichever form, and what is left is still what it was."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dagster_airbyte_proto
from dagster_airbyte_proto.masking import (
    MASKED,
    Mask,
    UnmaskedText,
    config_secrets,
    cut_text,
    named_secrets,
    secret_values,
    without_logins,
)
from dagster_airbyte_proto.protocols.airbyte.source import AirbyteSource
from dagster_airbyte_proto.protocols.events import ErrorEvent, PlainLine


def test_a_secret_is_masked_in_text_bytes_and_json() -> None:
    mask = Mask(["hunter2"])
    assert mask.text("login with hunter2!") == "login with ***!"
    assert mask.data(b'{"p":"hunter2"}\n') == b'{"p":"***"}\n'
    assert mask.value({"a": ["x hunter2", {"hunter2": 1}], "b": b"hunter2", "c": None}) == {
        "a": ["x ***", {"***": 1}],
        "b": b"***",
        "c": None,
    }


def test_without_secrets_all_stays_as_it_is() -> None:
    mask = Mask(["", ""])
    assert (mask.text("a"), mask.data(b"a"), mask.value({"a": [1, True]})) == ("a", b"a", {"a": [1, True]})


def test_of_two_secrets_the_longer_is_masked_whole() -> None:
    assert Mask(["token", "token-extended"]).text("token-extended token") == "*** ***"


@given(st.text(min_size=4))
def test_no_form_of_a_secret_gets_through(secret: str) -> None:
    mask = Mask([secret])
    forms = [
        json.dumps(secret),
        json.dumps(secret, ensure_ascii=False),
        json.dumps(json.dumps(secret)),
        f'"{quote(secret, safe="")}"',
        f'"{quote(secret, safe="").lower()}"' if secret == secret.lower() else '""',
        repr(secret),
    ]
    for form in forms:
        # A quote or backslash of the frame may be part of a match, so the frame is not compared.
        masked = mask.text(f"before {form} after")
        assert masked == f"before {form} after" if form == '""' else form not in masked
        assert mask.text(f"before {form} after").encode() == mask.data(f"before {form} after".encode())
    assert mask.value([secret]) == [MASKED]


@pytest.mark.parametrize("form", ["caf\\u00e9/x", "caf\\u00E9/x", "caf\\u00e9\\/x", "caf%c3%a9%2fx", "caf%C3%A9/x"])
def test_both_letter_cases_of_an_escape_are_known(form: str) -> None:
    assert Mask(["café/x"]).text(f"<{form}>") == "<***>"


def test_a_private_key_is_masked_line_by_line() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END KEY-----\n"
    assert Mask([key]).text("key line: kqhkiG9w0BAQEF.") == "key line: ***."
    assert Mask([key]).text(json.dumps({"k": key})) == '{"k": "***"}'


@pytest.mark.parametrize(
    ("secret", "said", "shown"),
    [
        (
            "https://hooks.example.org/services/T01ABCDEF/9f8e7d6c5b4a3928",
            "HTTPSConnectionPool(host='hooks.example.org', port=443): url: /services/T01ABCDEF/9f8e7d6c5b4a3928",
            "HTTPSConnectionPool(host='hooks.example.org', port=443): url: /services/T01ABCDEF/***",
        ),
        ("postgresql://ann:open%20sesame@db/shop", "psycopg2://ann:open%20sesame@db", "psycopg2://ann:***@db"),
        ("postgresql://ann:open%20sesame@db/shop", "FATAL: not open sesame", "FATAL: not ***"),
        ("https://a.example/feed?api_token=hunter22&size=many", "?api_token=hunter22 fails", "?api_token=*** fails"),
        ("jdbc:postgresql://db/shop?user=ann&password=hunter22", "refused hunter22", "refused ***"),
        ("https://a.example/v1/customers?format=json", "/v1/customers?format=json", "/v1/customers?format=json"),
        ("https://[a.example/9f8e7d6c5b4a3928", "9f8e7d6c5b4a3928", "9f8e7d6c5b4a3928"),
    ],
)
def test_the_secret_parts_of_a_secret_url_are_masked_alone(secret: str, said: str, shown: str) -> None:
    mask = Mask([secret])
    assert (mask.text(said), mask.data(said.encode())) == (shown, shown.encode())
    assert mask.text(f"<{secret}>") == "<***>"


def test_a_text_is_cut_before_the_word_that_would_be_cut() -> None:
    assert cut_text("login with hunter2!", 19) == "login with hunter2!"
    assert cut_text("login with hunter2!", 15) == "login with (cut)"
    assert cut_text('{"password":"hunter2"}', 18) == '{"password": (cut)'
    assert cut_text("x" * 100, 10) == " (cut)"


def test_no_part_of_a_secret_is_left_where_the_text_of_an_event_is_cut() -> None:
    secret, source = "hunter22-of-the-shop", AirbyteSource()
    mask, lead = Mask([secret]), "." * (16 * 1024 - 10)
    plain = source.event(f'{"." * 3990} "{secret}"'.encode())
    assert isinstance(plain, PlainLine)
    assert mask.text(plain.shown(4000)) == f"{'.' * 3990}  (cut)"
    error = {"type": "ERROR", "emitted_at": 1.0, "error": {"message": f'{lead}"{secret}"'}}
    failed = source.event(json.dumps({"type": "TRACE", "trace": error}).encode())
    assert isinstance(failed, ErrorEvent)
    assert mask.text(failed.message) == f"{lead} (cut)"


def test_the_login_of_a_url_is_left_out() -> None:
    text = "Looking in https://ann:hunter22@pypi.example.org/simple, https://token@npm.example.org and a@b"
    shown = "Looking in https://***@pypi.example.org/simple, https://***@npm.example.org and a@b"
    assert without_logins(text) == shown


def test_a_short_secret_is_masked_only_as_a_whole_json_value() -> None:
    mask = Mask(["a1"])
    assert mask.value({"a1": "a1", "b": "a1b", "c": ["a1"]}) == {"a1": "***", "b": "a1b", "c": ["***"]}
    assert mask.text("a1") == "***"
    assert mask.text("ba1c a1") == "ba1c a1"
    assert mask.data(b'{"a1": "a1", "b":"a1b"}') == b'{"a1": "***", "b":"a1b"}'
    assert mask.text(r'"{\"p\": \"a1\"}"') == r'"{\"p\": \"***\"}"'


def test_a_secret_number_is_masked_and_json_stays_json() -> None:
    mask = Mask(["1234", "42"])
    line = b'{"pin": 1234, "list":[42,7], "time": 91234567, "price": 12.1234, "note": "pin 1234.", "n": 142}'
    masked = mask.data(line)
    assert json.loads(masked) == {
        "pin": "***", "list": ["***", 7], "time": 91234567, "price": 12.1234, "note": "pin ***.", "n": 142,
    }  # fmt: skip
    assert mask.value({"pin": 1234, "t": True, "list": [42, 7], "f": 1234.5}) == {
        "pin": "***", "t": True, "list": ["***", 7], "f": 1234.5,
    }  # fmt: skip


def test_a_mask_can_learn_a_secret() -> None:
    assert Mask(["first"]).extended(["second"]).text("first second third") == "*** *** third"


SECRET = {"type": "string", "airbyte_secret": True}


@pytest.mark.parametrize(
    ("schema", "config", "secrets"),
    [
        ({"properties": {"p": SECRET, "q": {}}}, {"p": "word", "q": "open"}, {"word"}),
        (
            {"properties": {"a": {"oneOf": [{"properties": {"p": SECRET}}, {}]}}},
            {"a": {"p": "word", "q": "o"}},
            {"word"},
        ),
        ({"anyOf": [{"allOf": [{"properties": {"p": SECRET}}]}]}, {"p": "word"}, {"word"}),
        (
            {"properties": {"l": {"items": {"properties": {"p": SECRET}}}}},
            {"l": [{"p": "one"}, {"p": "two"}]},
            {"one", "two"},
        ),
        ({"properties": {"l": {"items": [{}, SECRET]}}}, {"l": ["open", "word"]}, {"word"}),
        (
            {"properties": {"a": {"$ref": "#/definitions/a~1b"}}, "definitions": {"a/b": SECRET}},
            {"a": "word"},
            {"word"},
        ),
        (
            {"$ref": "#", "properties": {"p": SECRET, "deep": {"$ref": "#"}}},
            {"deep": {"deep": {"p": "word"}}},
            {"word"},
        ),
        ({"properties": {"n": {"airbyte_secret": True}}}, {"n": 1234}, {"1234"}),
        ({"properties": {"n": {"airbyte_secret": True}}}, {"n": {"a": ["x", True, None]}}, {"x"}),
        ({"additionalProperties": SECRET}, {"any": "word"}, {"word"}),
        ({"patternProperties": {"^p": SECRET}}, {"pass": "word"}, {"word"}),
        ({"if": {}, "then": {"properties": {"p": SECRET}}}, {"p": "word"}, {"word"}),
        ({"properties": {"p": SECRET}}, {"p": ""}, set()),
        (
            {"properties": {"p": {"$ref": "https://elsewhere/x"}, "q": {"$ref": "#/none/0"}}},
            {"p": "a", "q": "b"},
            set(),
        ),
        ({"properties": [], "oneOf": {}, "items": 3}, {"p": "a"}, set()),
        ("no schema", {"p": "a"}, set()),
    ],
)
def test_secrets_are_found_wherever_the_spec_marks_them(schema: Any, config: Any, secrets: set[str]) -> None:
    assert secret_values(config, schema) == secrets


def test_a_key_inside_a_secret_json_document_is_a_secret_of_its_own() -> None:
    account = json.dumps({"type": "service_account", "private_key": "-----BEGIN\nMIIEvQIBADANBg\n-----END\n"})
    secrets = secret_values({"account": account}, {"properties": {"account": SECRET}})
    assert secrets == {account, "-----BEGIN\nMIIEvQIBADANBg\n-----END\n"}
    assert Mask(secrets).text("cannot parse MIIEvQIBADANBg") == "cannot parse ***"


def test_where_a_spec_marks_no_secret_the_names_of_keys_suggest_them() -> None:
    config = {"apiKey": "abcdefgh", "login": {"password": "long enough"}, "primary_key": "id", "host": "db.example.org"}
    assert config_secrets(config, {}) == {"abcdefgh", "long enough"}
    assert config_secrets(config, {"properties": {"host": SECRET}}) == {"db.example.org"}


def test_a_password_in_a_url_is_a_secret_whatever_its_key_is() -> None:
    config = {"dsn": "postgresql://ann:long%20enough@db/shop", "hosts": ["https://a.example", "amqp://b:two words@mq"]}
    assert named_secrets(config) == {"long%20enough", "long enough"}
    assert named_secrets({"hosts": ["amqp://bob:bobs-word@mq"], "passphrase": "open"}) == {"bobs-word", "open"}


def test_a_text_of_a_connector_is_shown_only_through_a_mask() -> None:
    text = UnmaskedText("denied: hunter22")
    assert f"{text} {text!r}" == "*** ***"
    assert Mask({"hunter22"}).text(text) == "denied: ***"
    assert bool(text) and not UnmaskedText()


def test_only_those_that_make_such_texts_read_them_without_a_mask() -> None:
    package = Path(dagster_airbyte_proto.__file__).parent
    readers = {path.relative_to(package) for path in package.rglob("*.py") if ".unmasked" in path.read_text()}
    assert {path.parts[0] for path in readers} <= {"masking.py", "protocols", "launchers"}, readers
