"""Writes the interface as WIT, against which a connector is built."""

from collections.abc import Iterable

from dagster_airbyte_proto.protocols.rapidbyte.component.interface import (
    HOST_FUNCTIONS,
    NAMED_TYPES,
    PACKAGE,
    ROLE_FUNCTIONS,
    ROLES,
    VERSION,
)
from dagster_airbyte_proto.protocols.rapidbyte.component.wit_types import (
    WitFunction,
    WitRecord,
    WitScalar,
    WitType,
    WitVariant,
)

_FROM_TYPES = "connector-error, run-request, run-summary, session, validation-report"


def wit_text() -> str:
    """The whole package `rapidbyte:connector` as one WIT file."""
    worlds = "\n".join(f"world rapidbyte-{role} {{ import host; export {role}; }}" for role in ROLES)
    return "\n\n".join(
        [
            f"package {PACKAGE}@{VERSION};",
            _interface("types", ["type session = u64;", *map(_definition, NAMED_TYPES)]),
            _interface(
                "host",
                [
                    "use types.{connector-error, socket-read-result, socket-write-result};",
                    *map(_signature, HOST_FUNCTIONS),
                ],
            ),
            *(
                _interface(role, [f"use types.{{{_FROM_TYPES}}};", *map(_signature, ROLE_FUNCTIONS[role])])
                for role in ROLES
            ),
            f"world rapidbyte-host {{ import host; }}\n{worlds}\n",
        ]
    )


def _interface(name: str, lines: Iterable[str]) -> str:
    return f"interface {name} {{\n" + "".join(f"    {line}\n" for line in lines) + "}"


def _definition(kind: WitRecord | WitVariant) -> str:
    if isinstance(kind, WitRecord):
        fields = ", ".join(f"{field.name}: {_reference(field.type)}" for field in kind.fields)
        return f"record {kind.name} {{ {fields} }}"
    cases = (each.name + (f"({_reference(each.payload)})" if each.payload else "") for each in kind.cases)
    return f"{kind.form} {kind.name} {{ {', '.join(cases)} }}"


def _signature(function: WitFunction) -> str:
    arguments = ", ".join(
        f"{each.name}: {'session' if each.name == 'session' else _reference(each.type)}" for each in function.parameters
    )
    answer = "session" if function.name == "open" else ""
    if function.result is None:
        return f"{function.name}: func({arguments});"
    found = _reference(function.result)
    return f"{function.name}: func({arguments}) -> {found.replace('<u64', f'<{answer}') if answer else found};"


def _reference(kind: WitType) -> str:
    if isinstance(kind, WitScalar):
        return kind.name
    if isinstance(kind, WitRecord):
        return kind.name
    if isinstance(kind, WitVariant):
        if kind.form == "option":
            return f"option<{_reference(_payload(kind, 1))}>"
        if kind.form == "result":
            ok, error = (each.payload for each in kind.cases)
            return f"result<{_reference(ok) if ok else '_'}, {_reference(error) if error else '_'}>"
        return kind.name
    return "string" if kind.item is None else f"list<{_reference(kind.item)}>"


def _payload(kind: WitVariant, number: int) -> WitType:
    found = kind.cases[number].payload
    assert found is not None, "an option holds something"
    return found
