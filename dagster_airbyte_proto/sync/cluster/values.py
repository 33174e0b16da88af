"""Values on the wire between driver and executors: MessagePack by the types that methods declare.

Nothing from the network is unpickled. A value is decoded into the declared type, and into nothing else. JSON has
integers that MessagePack has not: JSON Schemas and states with such a one carry it as an extension type.
"""

import inspect
import traceback
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
import pyarrow as pa

from dagster_airbyte_proto import errors
from dagster_airbyte_proto.errors import InternalError, ProtoError
from dagster_airbyte_proto.loads.storage import Storage

_ERRORS = {name: found for name, found in vars(errors).items() if inspect.isclass(found)}


_BIG_INTEGER = 1
"""The code of an extension type: an integer of more than 64 bits, in decimal digits."""


class RemoteError(msgspec.Struct, frozen=True):
    """A ProtoError: the name of its class, and its fields."""

    name: str
    fields: dict[str, Any]


class _Signature(NamedTuple):
    call: inspect.Signature
    arguments: msgspec.msgpack.Decoder[Any]
    answer: msgspec.msgpack.Decoder[Any]
    is_iterator: bool


class RemoteMethods:
    """The methods of interfaces, as calls with encoded arguments and answers."""

    def __init__(self, *interfaces: type) -> None:
        self._signatures = {
            name: _signature(method)
            for interface in interfaces
            for name, method in inspect.getmembers(interface, inspect.isfunction)
            if not name.startswith("_")
        }

    def __iter__(self) -> Iterator[str]:
        return iter(self._signatures)

    def encoded_arguments(self, name: str, positional: tuple[Any, ...], named: dict[str, Any]) -> bytes:
        """Encodes the arguments of a call. Functions among them stay here."""
        bound = self._signatures[name].call.bind(None, *positional, **named).arguments
        return encoded({key: value for key, value in bound.items() if key != "self" and not callable(value)})

    def arguments(self, name: str, content: bytes) -> dict[str, Any]:
        """Decodes the arguments of a call, by their names. Raises msgspec.ValidationError."""
        found = self._signatures[name].arguments.decode(content)
        return {key: value for key, value in msgspec.structs.asdict(found).items() if value is not msgspec.UNSET}

    def encoded_answer(self, name: str, answer: Any) -> bytes:
        return encoded(list(answer) if self._signatures[name].is_iterator else answer)

    def answer(self, name: str, content: bytes) -> Any:
        found = self._signatures[name].answer.decode(content)
        return iter(found) if self._signatures[name].is_iterator else found


def encoded(value: Any) -> bytes:
    try:
        return _ENCODER.encode(value)
    except OverflowError:
        plain = msgspec.to_builtins(value, builtin_types=(bytes, datetime), enc_hook=_encoded)
        return _ENCODER.encode(_with_big_integers(plain))


def decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Returns a decoder of values of this type, for a constant of a module."""
    return msgspec.msgpack.Decoder(kind, dec_hook=_decoded, ext_hook=_big_integer)


def as_remote(error: BaseException) -> RemoteError:
    """Returns an error in the form that crosses the wire. One that is not ours becomes an InternalError."""
    if not isinstance(error, ProtoError):
        *_, place = traceback.extract_tb(error.__traceback__) or [None]
        where = f" ({place.filename}, line {place.lineno})" if place else ""
        error = InternalError("working for another process", f"{type(error).__name__}: {error}{where}")
    return RemoteError(type(error).__name__, dict(vars(error)))


def from_remote(remote: RemoteError) -> ProtoError:
    """Returns the error that crossed the wire."""
    kind = _ERRORS.get(remote.name)
    if kind is None or not issubclass(kind, ProtoError):
        return InternalError("reading an error of another process", f"{remote.name} is none of ours")
    fields = {name: _frozen(value) for name, value in remote.fields.items()}
    error: ProtoError = kind.__new__(kind)
    error.args = tuple(fields.get(name) for name in ("doing", "found", "remedy", "stream"))
    vars(error).update(fields)
    return error


def _frozen(value: Any) -> Any:
    return tuple(_frozen(each) for each in value) if isinstance(value, list) else value


def _signature(method: Callable[..., Any]) -> _Signature:
    hints = get_type_hints(method)
    answer = hints.pop("return", None)
    is_iterator = get_origin(answer) is Iterator
    if is_iterator:
        answer = list[get_args(answer)[0]]  # type: ignore[misc]  # a type that is known at run time
    sent = [
        (name, kind | msgspec.UnsetType, msgspec.UNSET)
        for name, kind in hints.items()
        if get_origin(kind) is not Callable
    ]
    arguments = msgspec.defstruct(method.__name__, sent, kw_only=True, forbid_unknown_fields=True)
    return _Signature(inspect.signature(method), decoder(arguments), decoder(answer), is_iterator)


def _with_big_integers(value: Any) -> Any:
    """The value with extension types in the place of the integers that MessagePack has not."""
    match value:
        case int() if not -(1 << 63) <= value < 1 << 64:
            return msgspec.msgpack.Ext(_BIG_INTEGER, b"%d" % value)
        case dict():
            return {key: _with_big_integers(each) for key, each in value.items()}
        case list() | tuple():
            return [_with_big_integers(each) for each in value]
    return value


def _big_integer(code: int, data: memoryview) -> int:
    if code != _BIG_INTEGER:
        raise msgspec.ValidationError(f"there is no extension type {code}")
    return int(bytes(data))


def _encoded(value: Any) -> Any:
    match value:
        case pa.Schema():
            return value.serialize().to_pybytes()
        case pa.DataType():
            return pa.schema([("", value)]).serialize().to_pybytes()
        case pa.Table():
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, value.schema) as writer:
                writer.write_table(value)
            return sink.getvalue().to_pybytes()
        case pa.Scalar():
            return _encoded(pa.table({"": pa.array([value.as_py()], value.type)}))
        case Storage():
            return value.settings
    raise NotImplementedError(f"{type(value).__name__} does not cross the wire")


def _decoded(kind: type, value: Any) -> Any:
    if issubclass(kind, pa.Schema):
        return pa.ipc.read_schema(pa.py_buffer(value))
    if issubclass(kind, pa.DataType):
        return pa.ipc.read_schema(pa.py_buffer(value)).field(0).type
    if issubclass(kind, pa.Table):
        return pa.ipc.open_stream(value).read_all()
    if issubclass(kind, pa.Scalar):
        return pa.ipc.open_stream(value).read_all().column(0)[0]
    if issubclass(kind, Storage):
        return Storage(value)
    raise NotImplementedError(f"{kind.__name__} does not cross the wire")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_encoded)
