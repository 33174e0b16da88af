"""The text of component types, for `wat2wasm`: named types are referred to as `$name`."""

from collections.abc import Iterable

from dagster_airbyte_proto.protocols.rapidbyte.component.interface import NAMED_TYPES
from dagster_airbyte_proto.protocols.rapidbyte.component.wit_types import (
    WitFunction,
    WitList,
    WitRecord,
    WitScalar,
    WitType,
    WitVariant,
)


def reference(kind: WitType) -> str:
    """The type where it is used: by its name, if it has one."""
    name = kind.name if isinstance(kind, WitRecord | WitVariant) else ""
    return f"${name}" if name else _definition(kind)


def _definition(kind: WitType) -> str:
    if isinstance(kind, WitScalar):
        return kind.name
    if isinstance(kind, WitList):
        return "string" if kind.item is None else f"(list {reference(kind.item)})"
    if isinstance(kind, WitRecord):
        return "(record " + " ".join(f'(field "{field.name}" {reference(field.type)})' for field in kind.fields) + ")"
    payloads = [reference(case.payload) if case.payload else "" for case in kind.cases]
    if kind.form == "enum":
        return "(enum " + " ".join(f'"{case.name}"' for case in kind.cases) + ")"
    if kind.form == "option":
        return f"(option {payloads[1]})"
    if kind.form == "result":
        return f"(result {payloads[0]} (error {payloads[1]}))"
    named = zip((case.name for case in kind.cases), payloads, strict=True)
    return "(variant " + " ".join(f'(case "{name}" {payload})' for name, payload in named) + ")"


def signature(function: WitFunction, name: str = "") -> str:
    """The type of a function; with a `name`, the beginning of its definition."""
    parameters = " ".join(f'(param "{each.name}" {reference(each.type)})' for each in function.parameters)
    result = f"(result {reference(function.result)})" if function.result else ""
    return f"(func {f'${name}' if name else ''} {parameters} {result})"


def types_instance() -> str:
    """The body of an instance type that exports every named type."""
    return "\n".join(
        f'(type ${kind.name}_ {_definition(kind)}) (export "{kind.name}" (type ${kind.name} (eq ${kind.name}_)))'
        for kind in NAMED_TYPES
    )


def types_import(name: str) -> str:
    """The import of an instance of all named types."""
    return f'(import "{name}" (instance $types\n{types_instance()}))\n'


def types_aliased(kinds: Iterable[WitRecord | WitVariant]) -> str:
    """Names of our own for types of the imported instance."""
    return "\n".join(f'(alias export $types "{kind.name}" (type ${kind.name}))' for kind in kinds)


def types_of_outside(kinds: Iterable[WitRecord | WitVariant]) -> str:
    """The same types within an instance type, as those of the component around it."""
    return "\n".join(
        f"(alias outer 1 ${kind.name} (type ${kind.name}_))"
        f' (export "{kind.name}" (type ${kind.name} (eq ${kind.name}_)))'
        for kind in kinds
    )
