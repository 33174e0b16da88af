import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.protocols import raw_json

_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=5), _json, max_size=5), st.sampled_from([None, 1]), st.booleans())
def test_the_scanner_takes_an_object_apart_as_msgspec_does(
    whole: dict[str, object], indent: int | None, escaped: bool
) -> None:
    raw = json.dumps(whole, indent=indent, ensure_ascii=escaped).encode()
    # A value that a strict reader refuses sends the same object to the scanner.
    refused = json.dumps({**whole, "refused": float("nan")}, indent=indent, ensure_ascii=escaped).encode()
    strict, lenient = raw_json.members(raw), raw_json.members(refused)
    assert strict is not None
    assert lenient == {**strict, "refused": b"NaN"}
    assert {name: json.loads(part) for name, part in strict.items()} == whole


@given(st.lists(_json, max_size=5))
def test_the_scanner_takes_an_array_apart_as_msgspec_does(whole: list[object]) -> None:
    strict, lenient = (
        raw_json.items(json.dumps(whole).encode()),
        raw_json.items(json.dumps([*whole, float("nan")]).encode()),
    )
    assert strict is not None
    assert lenient == [*strict, b"NaN"]


_NO_OBJECTS = (
    [b"", b"{", b"}", b'{"a"', b'{"a":', b'{"a":NaN', b'{"a":NaN,', b'{"a":NaN,}', b'{"a":NaN} {}', b"[NaN]", b"NaN"],
    [b'{"a":[NaN}', b'{"a":"NaN}', b"{NaN:1}", b'{"a" NaN}', b'{"a":NaN "b":1}', b'{"\\x":NaN}'],
)


@pytest.mark.parametrize("raw", [raw for raws in _NO_OBJECTS for raw in raws])
def test_what_is_no_whole_object_is_none(raw: bytes) -> None:
    assert raw_json.members(raw) is None


@pytest.mark.parametrize("raw", [b"", b"[", b"[NaN", b"[NaN,", b"[NaN,]", b"[NaN]]", b"{}", b'["NaN]'])
def test_what_is_no_whole_array_is_none(raw: bytes) -> None:
    assert raw_json.items(raw) is None


def test_the_scanner_knows_empty_objects_and_arrays() -> None:
    assert raw_json.members(b'{"a":{},"b":[],"c":NaN}') == {"a": b"{}", "b": b"[]", "c": b"NaN"}


def test_of_equal_names_the_last_wins_on_both_ways() -> None:
    assert raw_json.members(b'{"a":1,"a":2}') == {"a": b"2"}
    assert raw_json.members(b'{"a":NaN,"a":2}') == {"a": b"2"}


def test_brackets_in_strings_are_text() -> None:
    raw = b'{"a":{"b":"}]\\"}","c":[NaN,"{"]},"d":1}'
    assert raw_json.members(raw) == {"a": b'{"b":"}]\\"}","c":[NaN,"{"]}', "d": b"1"}


def test_a_value_can_be_printed_whatever_it_held() -> None:
    assert raw_json.value(b'{"a":"\\ud800x","b":"\xff"}') == {"a": "?x", "b": "�"}


@pytest.mark.parametrize("raw", [b"", b"---", b"[" * 100_000 + b"]" * 100_000, b"9" * 5000])
def test_a_hopeless_value_is_a_part_error(raw: bytes) -> None:
    with pytest.raises(raw_json.MemberError):
        raw_json.value(raw)


def test_a_member_is_put_in_with_every_other_byte_kept() -> None:
    assert raw_json.with_member(b'{"a": 1.50, "b":{ "x":NaN}}', "b", b"[]") == b'{"a":1.50,"b":[]}'
    assert raw_json.with_member(b'{"a": 1.50}', "type", b'"LEGACY"') == b'{"a":1.50,"type":"LEGACY"}'
