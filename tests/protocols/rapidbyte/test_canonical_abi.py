"""The canonical ABI: known bytes, every type there and back, and anything at all."""

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.protocols.rapidbyte.component.canonical_abi import (
    GuestMemory,
    LoweredBlock,
    flattened,
    flattened_parameters,
    layout,
    lifted,
)
from dagster_airbyte_proto.protocols.rapidbyte.component.interface import (
    CONNECTOR_ERROR,
    HOST_FUNCTIONS,
    NAMED_TYPES,
    ROLE_FUNCTIONS,
    RUN_REQUEST,
    RUN_SUMMARY,
    VALIDATION_REPORT,
)
from dagster_airbyte_proto.protocols.rapidbyte.component.wit_types import (
    BOOL,
    BYTES,
    STRING,
    U64,
    Tagged,
    WitCase,
    WitField,
    WitList,
    WitRecord,
    WitScalar,
    WitType,
    option,
)

_BASE = 65536
_ERROR = {
    "category": "rate-limit",
    "scope": "per-batch",
    "code": "BOOM",
    "message": "déjà vu",
    "retryable": True,
    "retry-after-ms": 1234,
    "backoff-class": "slow",
    "safe-to-retry": True,
    "commit-state": "after-commit-unknown",
    "details-json": '{"k":1}',
}
_ERROR_BYTES = (
    bytes([3, 1, 0, 0])
    + struct.pack("<IIII", _BASE + 56, 4, _BASE + 60, 9)
    + bytes([1, 0, 0, 0])
    + struct.pack("<QQ", 1, 1234)
    + bytes([2, 1, 1, 1])
    + struct.pack("<III", 1, _BASE + 69, 7)
    + "BOOMdéjà vu".encode()
    + b'{"k":1}'
)
"""Laid out by hand after the canonical ABI. Behind `retryable` are three bytes of nothing: the u64 is aligned to 8."""


def _stored(kind: WitType, value: Any) -> bytes:
    block = LoweredBlock(_BASE, layout(kind).size)
    block.store(kind, value)
    return b"".join(block.pieces)


def test_sizes_are_those_of_the_abi() -> None:
    assert layout(CONNECTOR_ERROR) == (56, 8)
    assert layout(RUN_SUMMARY) == (152, 8)
    assert layout(VALIDATION_REPORT) == (20, 4)
    assert flattened(option(STRING)) == ("i32", "i32", "i32")
    assert flattened(RUN_REQUEST) == ("i32", "i32", "i32", "i32", "i32", "i64")


def test_an_error_lies_where_the_abi_puts_it() -> None:
    assert _stored(CONNECTOR_ERROR, _ERROR) == _ERROR_BYTES
    assert GuestMemory(_ERROR_BYTES, _BASE).value(CONNECTOR_ERROR, 0) == _ERROR


def test_arguments_are_read_from_core_values() -> None:
    cas = next(function for function in HOST_FUNCTIONS if function.name == "state-cas")
    memory = GuestMemory(b"keyoldnew", _BASE)
    flat = [1, _BASE, 3, 1, _BASE + 3, 3, _BASE + 6, 3]
    assert lifted(cas.parameters, flat, memory) == [1, "key", "old", "new"]
    assert lifted(cas.parameters, [1, _BASE, 3, 0, 0, 0, _BASE + 6, 3], memory) == [1, "key", None, "new"]


@pytest.mark.parametrize("flat", [[_BASE + 1, 9], [_BASE - 1, 1], [0, 1], [_BASE, 1 << 40]])
def test_a_string_outside_of_the_message_is_refused(flat: list[int]) -> None:
    with pytest.raises(ProtocolViolation, match="outside of its memory"):
        lifted((WitField("key", STRING),), flat, GuestMemory(b"012345678", _BASE))


def test_a_case_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ProtocolViolation, match="error-category has no case 200"):
        GuestMemory(bytes([200]) + bytes(100), _BASE).value(CONNECTOR_ERROR, 0)


def _values(kind: WitType) -> st.SearchStrategy[Any]:
    if isinstance(kind, WitScalar):
        return st.booleans() if kind == BOOL else st.integers(0, (1 << 8 * kind.size) - 1)
    if isinstance(kind, WitRecord):
        return st.fixed_dictionaries({field.name: _values(field.type) for field in kind.fields})
    if isinstance(kind, WitList):
        # Lists of anything else come from a connector only.
        return st.text(max_size=9) if kind.item is None else st.binary(max_size=9) if kind == BYTES else st.just(b"")
    if kind.form == "option":
        payload = kind.cases[1].payload
        assert payload is not None
        return st.none() | _values(payload)
    if kind.form == "enum":
        return st.sampled_from([case.name for case in kind.cases])
    return st.one_of(*map(_tagged, kind.cases))


def _tagged(case: WitCase) -> st.SearchStrategy[Tagged]:
    return st.builds(Tagged, st.just(case.name), _values(case.payload) if case.payload else st.none())


_RESULTS = {function.name: function.result for function in (*HOST_FUNCTIONS, *ROLE_FUNCTIONS["source"])}
_THERE_AND_BACK = [
    *(kind for kind in NAMED_TYPES if kind != VALIDATION_REPORT),
    *(kind for name, kind in _RESULTS.items() if kind is not None and name != "validate"),
]


@given(st.sampled_from(_THERE_AND_BACK).flatmap(lambda kind: st.tuples(st.just(kind), _values(kind))))
def test_every_value_comes_back_as_it_was_stored(case: tuple[WitType, Any]) -> None:
    kind, value = case
    assert GuestMemory(_stored(kind, value), _BASE).value(kind, 0) == value


_ALL = {function.name: function for function in (*HOST_FUNCTIONS, *ROLE_FUNCTIONS["source"])}


@given(st.sampled_from(sorted(_ALL)).flatmap(
    lambda name: st.tuples(
        st.just(_ALL[name]), st.tuples(*(_values(parameter.type) for parameter in _ALL[name].parameters))
    )
))  # fmt: skip
def test_every_argument_comes_back_as_it_was_lowered(case: tuple[Any, tuple[Any, ...]]) -> None:
    function, arguments = case
    block = LoweredBlock(_BASE, 0)
    flat = [
        core
        for parameter, value in zip(function.parameters, arguments, strict=True)
        for core in block.lower(parameter.type, value)
    ]
    assert len(flat) == len(flattened_parameters(function.parameters))
    assert lifted(function.parameters, flat, GuestMemory(b"".join(block.pieces), _BASE)) == list(arguments)


@given(st.sampled_from([*NAMED_TYPES, WitList(STRING), U64]), st.binary(max_size=200), st.integers(-4, 210))
def test_any_memory_is_a_value_or_a_violation(kind: WitType, content: bytes, offset: int) -> None:
    with contextlib.suppress(ProtocolViolation):
        GuestMemory(content, 16).value(kind, offset)
