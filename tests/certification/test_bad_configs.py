"""Bad configs are made of a good one and its spec, and what a connector rewrites of them is mended."""

from typing import Any

from dagster_airbyte_proto.certification.bad_configs import bad_configs, mended

_GOOD: dict[str, Any] = {"url": "https://x", "login": {"token": "secret-of-mine", "tries": 3}, "note": None}
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["url"],
    "properties": {
        "url": {"type": "string"},
        "login": {
            "type": "object",
            "required": ["token"],
            "properties": {"token": {"type": "string", "airbyte_secret": True}, "tries": {"type": "integer"}},
        },
        "note": {"type": ["string", "null"]},
    },
}


def test_a_spec_of_odd_words_makes_bad_configs_all_the_same() -> None:
    token = {**_SCHEMA["properties"]["login"], "required": True, "type": ["object", 5]}
    schema = {**_SCHEMA, "properties": {**_SCHEMA["properties"], "login": token, "note": {"type": 5}}}
    assert "without url" in {bad.description for bad in bad_configs(_GOOD, schema)}


def test_each_kind_of_bad_config_is_made_and_the_good_one_stays() -> None:
    made = {bad.description: bad for bad in bad_configs(_GOOD, _SCHEMA)}
    assert made.keys() == {
        "without url", "without login.token", "with a wrong type in url", "with a wrong type in login",
        "with nonsense in the secret login.token",
    }  # fmt: skip
    assert made["without login.token"].config == {**_GOOD, "login": {"tries": 3}}
    assert {name for name, bad in made.items() if not bad.is_certain} == {"with nonsense in the secret login.token"}
    assert _GOOD["login"] == {"token": "secret-of-mine", "tries": 3}


def test_without_a_spec_no_config_is_bad() -> None:
    assert bad_configs(_GOOD, {}) == ()


def test_a_rotated_token_survives_a_bad_config() -> None:
    bad = next(each for each in bad_configs(_GOOD, _SCHEMA) if each.description == "without url")
    rewritten = {**bad.config, "login": {"token": "rotated", "tries": 3}}
    assert mended(rewritten, bad, _GOOD) == {**_GOOD, "login": {"token": "rotated", "tries": 3}}
