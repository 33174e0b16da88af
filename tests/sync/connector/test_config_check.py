"""A config against a connector's spec: every fault with its path, no value shown."""

import threading
import time
from itertools import pairwise
from typing import Any

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.sync.connector.config_check import check_config

# The shape of source-file's spec: a oneOf with a constant that says which branch is meant.
PROVIDER: dict[str, Any] = {
    "type": "object",
    "oneOf": [
        {"required": ["storage"], "properties": {"storage": {"type": "string", "const": "HTTPS"}}},
        {
            "required": ["storage", "user", "host"],
            "properties": {
                "storage": {"type": "string", "const": "SSH"},
                "user": {"type": "string"},
                "host": {"type": "string"},
                "port": {"type": "integer", "minimum": 1},
                "password": {"type": "string", "airbyte_secret": True, "minLength": 20},
            },
        },
        {"required": ["storage"], "properties": {"storage": {"type": "string", "enum": ["local"]}}},
    ],
}
SPEC: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "required": ["dataset_name", "format", "provider"],
    "additionalProperties": True,
    "properties": {
        "dataset_name": {"type": "string", "minLength": 2},
        "format": {"type": "string", "enum": ["csv", "json", "parquet"]},
        "since": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$", "pattern_descriptor": "YYYY-MM-DD"},
        "provider": PROVIDER,
        "count": {"type": ["integer", "null"], "maximum": 10},
        "streams": {"type": "array", "items": {"type": "object", "required": ["name"]}},
    },
}
GOOD: dict[str, Any] = {"dataset_name": "users", "format": "csv", "provider": {"storage": "HTTPS"}}


def faults(config: dict[str, Any], spec: dict[str, Any] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as error:
        check_config(config, spec or SPEC, where="config of shop")
    assert error.value.doing == "config of shop"
    lines = error.value.found.splitlines()
    return [line.strip() for line in lines[1:]] if len(lines) > 1 else lines


def test_a_config_that_fits_passes_without_a_word() -> None:
    assert check_config(GOOD, SPEC, where="config of shop") == ()
    assert check_config({**GOOD, "extra": 1}, SPEC, where="config of shop") == ()


def test_every_fault_is_reported_with_its_path() -> None:
    config = {
        "dataset_name": "u",
        "formt": "csv",
        "provider": {"storage": "HTTPS"},
        "since": "yesterday",
        "count": 11,
        "streams": [{"name": "a"}, {}],
    }
    assert faults(config) == [
        "count: must be at most 10",
        "dataset_name: must have at least 2 characters",
        'format: is missing; there is an unknown "formt", is it meant?',
        "since: must look like YYYY-MM-DD",
        "streams[1].name: is missing",
    ]


def test_wrong_types_and_choices_tell_what_is_allowed() -> None:
    assert faults({**GOOD, "format": "cvs", "count": "7", "streams": {}}) == [
        "count: must be a whole number or nothing; found text",
        'format: must be one of csv, json, parquet; did you mean "csv"?',
        "streams: must be a list; found a mapping",
    ]


def test_the_branch_that_was_meant_tells_its_own_faults() -> None:
    assert faults({**GOOD, "provider": {"storage": "SSH", "host": 3, "port": 0}}) == [
        "provider.host: must be text; found a whole number",
        "provider.port: must be at least 1",
        "provider.user: is missing",
    ]


def test_an_unknown_branch_tells_the_known_ones() -> None:
    assert faults({**GOOD, "provider": {"storage": "SHS"}}) == [
        'provider.storage: must be one of HTTPS, SSH, local; did you mean "SSH"?'
    ]


def test_a_missing_discriminator_tells_what_it_may_be() -> None:
    assert faults({**GOOD, "provider": {"host": "h"}}) == [
        "provider.storage: is missing; must be one of HTTPS, SSH, local"
    ]


def test_branches_behind_references_and_inside_branches_are_followed() -> None:
    spec = {
        "properties": {"auth": {"oneOf": [{"$ref": "#/definitions/a"}, {"$ref": "#/definitions/b"}]}},
        "definitions": {
            "a": {"type": "object", "required": ["kind"], "properties": {"kind": {"const": "a"}, "p": PROVIDER}},
            "b": {"type": "object", "required": ["kind", "q"], "properties": {"kind": {"const": "b"}}},
        },
    }
    assert faults({"auth": {"kind": "a", "p": {"storage": "SSH", "user": "u"}}}, spec) == ["auth.p.host: is missing"]
    assert faults({"auth": {}}, spec) == ["auth.kind: is missing; must be one of a, b"]
    assert faults({"auth": "x"}, spec) == ["auth: must be a mapping; found text"]


def test_branches_of_other_types_do_not_hide_the_one_that_was_meant() -> None:
    spec = {
        "properties": {"x": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["id"]}, {"type": "null"}]}}
    }
    assert faults({"x": {}}, spec) == ["x.id: is missing"]
    assert faults({"x": 3}, spec) == ["x: must be text or a mapping or nothing; found a whole number"]


def test_without_a_discriminator_the_closest_branch_speaks() -> None:
    spec = {"oneOf": [{"required": ["a", "b", "c"]}, {"required": ["d"]}]}
    assert faults({}, spec) == ["d: is missing"]
    assert faults({"a": 1, "b": 1, "c": 1, "d": 1}, spec) == [
        "fits more than one of the choices that the connector's spec gives"
    ]


def test_unknown_keys_are_faults_only_where_the_spec_forbids_them() -> None:
    spec = {"additionalProperties": False, "properties": {"count": {}, "seed": {}}, "patternProperties": {"^x-": {}}}
    assert faults({"cuont": 1, "zzz": 2, "x-y": 3}, spec) == [
        'cuont: is not a known key; did you mean "count"?',
        "zzz: is not a known key; known here: count, seed",
    ]


@pytest.mark.parametrize(
    "rule",
    [
        {"type": "integer"}, {"const": "x"}, {"enum": ["x"]}, {"enum": ["hunter", "x"]}, {"pattern": "^x$"},
        {"maxLength": 2}, {"not": {}}, {"oneOf": [{"type": "string"}, {"minLength": 1}]},
        {"oneOf": [{"const": "x"}, {"const": "y"}]}, {"anyOf": [{"pattern": "^x$"}, {"maxLength": 2}]},
        {"allOf": [{"format": "date", "maxLength": 1}]}, False,
    ],
)  # fmt: skip
def test_no_value_is_ever_shown(rule: Any) -> None:
    assert "hunter2" not in "".join(faults({"password": "hunter2"}, {"properties": {"password": rule}}))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"type": "strin"}, "not a valid JSON schema"),
        ({"properties": {"a": {"$ref": "#/none"}}}, "not a valid JSON schema"),
        ({"properties": {"a": {"$ref": "http://127.0.0.1:1/schema.json"}}}, "not a valid JSON schema"),
        ({"properties": {"a": {"pattern": "(?<year>x)"}}}, "not a valid JSON schema"),
        ({"properties": {"a": {"$ref": "#/properties/a"}}}, "not a valid JSON schema"),
        (["a"], "is a list, not a JSON schema"),
        (None, "is nothing, not a JSON schema"),
    ],
)
def test_a_broken_spec_is_only_a_warning(spec: Any, reason: str) -> None:
    (warning,) = check_config({"a": "hunter2"}, spec, where="config of shop")
    assert warning.startswith("config of shop was not checked")
    assert reason in warning
    assert "hunter2" not in warning


_DOUBLING = {f"a{level}": {"allOf": [{"$ref": f"#/definitions/a{level + 1}"}] * 2} for level in range(40)}
_ENDLESS = {
    "backtracking": {"pattern": "^(a+)+$"},
    "backtracking behind a look-ahead": {"pattern": "^(?=.)(a+)+$"},
    "backtracking in a choice": {"oneOf": [{"pattern": "^(?=.)(a|a)*$"}, {"type": "integer"}]},
    "references that double": {"$ref": "#/definitions/a0"},
}


@pytest.mark.everyday("backtracking", "backtracking in a choice", "references that double")
@pytest.mark.parametrize("kind", _ENDLESS)
def test_a_spec_that_would_take_for_ever_neither_hangs_nor_stops_other_threads(kind: str) -> None:
    beats: list[float] = []
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(0.05):
            beats.append(time.monotonic())

    spec = {"properties": {"v": _ENDLESS[kind]}, "definitions": {**_DOUBLING, "a40": {"type": "string"}}}
    thread = threading.Thread(target=beat)
    thread.start()
    began = time.monotonic()
    try:
        warnings = check_config({"v": "a" * 60 + "!"}, spec, where="config", deadline_seconds=3.0)
        assert warnings == ("config was not checked: that took longer than 3 s by the connector's spec",)
    except ConfigError as error:
        assert kind == "backtracking" and "must match the pattern" in str(error)
    finally:
        ended.set()
        thread.join()
    assert time.monotonic() - began < 30
    assert max(after - before for before, after in pairwise([began, *beats])) < 5


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        (r"^\d+$", "12", "1x"),
        (r"^(https?:\/\/)?[a-z]+$", "https://a", "https://A"),
        (r"^(?!.*\.old$).+$", "a.new", "a.old"),
        (r"^(a)\1$", "aa", "ab"),
        ("^\\u00e9$", "\u00e9", "e"),
        ("^.$", "\ud800", ""),
    ],
)
def test_patterns_of_either_engine_are_kept(pattern: str, fits: str, does_not: str) -> None:
    spec = {"properties": {"v": {"type": "string", "pattern": pattern}}}
    assert check_config({"v": fits}, spec, where="config", deadline_seconds=60) == ()
    with pytest.raises(ConfigError, match="v: must match the pattern"):
        check_config({"v": does_not}, spec, where="config", deadline_seconds=60)
