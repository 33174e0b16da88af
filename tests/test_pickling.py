"""Values cross processes: each one pickles, and is the same afterwards.

The samples are made from the annotations, so a new value is tested as soon as it is written. A tuple that holds a
service (a store, a process, a callback) is no value: it stands in `_SERVICES`.
"""

import dataclasses
import inspect
import pickle
import re
import types
import typing
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import Enum
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pydantic import BaseModel

import dagster_airbyte_proto
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.connection.validation import StrictModel
from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.loads.storage import LOCAL, Storage
from dagster_airbyte_proto.settings import Settings

_ROOMS = ("model", "settings", "connection", "protocols", "launchers", "schema", "loads", "checkpoints", "sync")

_SERVICES = {
    "AlternativeForm": "annotates a field of a model, by its identity",
    "CallAnswer": "has an iterator",
    "CommitReporter": "has the context of a run",
    "ContainerHandle": "has the engine's client and open sockets",
    "DeliveryContext": "has the store and the lease's renewal",
    "Exchange": "has the pace that processes share, and the event that cancels the run",
    "Guardian": "has a process and its pipe",
    "InstallerWatch": "has a descriptor and a callback",
    "LaunchOptions": "has callbacks",
    "LaunchableConnector": "has a launcher",
    "LeasedRun": "has the lease's renewal and the log",
    "LeaseWait": "has an event and a callback",
    "LoadSteps": "has the stage, the ledger and the committer",
    "OpenBatchFile": "has an open file",
    "OpenedComponent": "has a process and the host that it calls",
    "PreparedSync": "has the stage, the ledger and the loader",
    "PushContext": "has the engine and the lease's renewal",
    "PushOrigin": "has the connectors of its transforms",
    "PushTransforms": "has the connectors of its transforms",
    "QueryListener": "has the log",
    "ReadOutcome": "has the reader",
    "RelayedTo": "has the destination's protocol",
    "RowLander": "has the stage, the loader and the tables",
    "RunOptions": "has an event and a listener",
    "ServedValues": "has the store",
    "StoredRowCache": "has the store and the lease's renewal",
    "SyncContext": "has the engine and the lease's renewal",
}
"""Classes that look like values, and why each stays in its process."""

_SCHEMA = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
_PLAIN_SAMPLES: dict[Any, Any] = {
    bool: True,
    int: 7,
    float: 0.5,
    str: "text",
    bytes: b"{}",
    Any: {"key": [1, None]},
    object: "text",
    datetime: datetime(2026, 1, 2, tzinfo=UTC),
    Path: Path("/lake"),
    pa.Schema: _SCHEMA,
    pa.DataType: pa.list_(pa.int64()),
    pa.Table: _SCHEMA.empty_table(),
    pa.RecordBatch: pa.RecordBatch.from_pydict({"id": [1]}, _SCHEMA),
    pa.Scalar: pa.scalar(3),
    pa.Array: pa.array([1, None]),
    re.Pattern: re.compile(b"a+"),
    Storage: LOCAL,
}

_LAUNCHES: list[dict[str, Any]] = [
    {"kind": "local", "command": ["source"]},
    {"kind": "pypi", "package": "source-faker==7.2.1"},
    {"kind": "npm", "package": "@acme/geo@1.2.0"},
    {"kind": "manifest", "path": "manifest.yaml"},
    {"kind": "docker", "image": "airbyte/source-faker:7.2.1", "container_kwargs": {"hostname": "a"}},
    {"kind": "wasm", "path": "source.wasm"},
    {"kind": "replay", "recording": "recordings/shop"},
]


def _connection(launch: dict[str, Any]) -> Connection:
    return Connection.model_validate(
        {
            "name": "shop",
            "connector": {"protocol": "rapidbyte" if launch["kind"] == "wasm" else "airbyte", "launch": launch},
            "config": {"count": 1},
            "streams": {"users": {"write": "append_dedup", "primary_key": ["id"], "types": {"objects": "struct"}}},
            "transforms": [
                {"sql": "SELECT * FROM input", "streams": ["users"]},
                {"validate": [{"assert_not_null": "id", "assert_range": {"id": {"min": 1}}}]},
                {
                    "connector": {"protocol": "syncmaven", "launch": {"kind": "local", "command": ["geo"]}},
                    "columns": {"city": "string"},
                    "cache": {"ttl": "1 day"},
                    "rate": {"rows_per_second": 5},
                },
            ],
        }
    )


_PLAIN_SAMPLES[Connection] = _connection(_LAUNCHES[0])


def _push() -> Connection:
    fields = {"id": "id", "shop": {"value": "north"}, "name": {"sql": "upper(name)"}}
    return Connection.model_validate(
        {
            "name": "crm",
            "connector": {"protocol": "singer", "launch": _LAUNCHES[0]},
            "push": {"contacts": {"from": "lake.shop.users", "key": ["id"], "map": fields}},
            "rate": {"rows_per_second": 200},
        }
    )


def _relay() -> Connection:
    connector = {"protocol": "airbyte", "launch": {"kind": "local", "command": "true"}}
    return Connection.model_validate({"name": "shop", "connector": connector, "to": {"connector": connector}})


_MODELS = [*map(_connection, _LAUNCHES), _push(), _relay(), Settings.load(Path("/home"))]


def _is_value(found: type) -> bool:
    is_frozen = dataclasses.is_dataclass(found) and found.__dataclass_params__.frozen  # type: ignore[attr-defined]  # of dataclasses alone
    return issubclass(found, msgspec.Struct) or is_frozen or hasattr(found, "_fields")


def _classes(is_wanted: Callable[[type], bool]) -> Iterator[type]:
    prefix = f"{dagster_airbyte_proto.__name__}."
    for module in walk_packages(dagster_airbyte_proto.__path__, prefix):
        if module.name.split(".")[1] not in _ROOMS:
            continue
        for name, found in vars(import_module(module.name)).items():
            is_here = inspect.isclass(found) and found.__module__ == module.name and not name.startswith("_")
            if is_here and is_wanted(found):
                yield found


def _sample(kind: Any, inside: tuple[type, ...] = ()) -> Any:
    """A value of a type, with every field filled. A type within itself gets an empty collection."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    plain = origin if origin is re.Pattern else kind
    if plain in _PLAIN_SAMPLES:
        return _PLAIN_SAMPLES[plain]
    if origin is typing.Literal:
        return arguments[0]
    if origin is typing.Annotated:
        return _sample(arguments[0], inside)
    if origin in (typing.Union, types.UnionType):
        wanted = [each for each in arguments if each is not types.NoneType and each not in inside]
        return _sample(wanted[0], inside) if wanted else None
    if inspect.isclass(kind) and issubclass(kind, Enum):
        return next(iter(kind))
    if inspect.isclass(kind) and issubclass(kind, ProtoError):
        return kind("committing a load", "the table is locked")
    if inspect.isclass(kind) and _is_value(kind):
        return _made(kind, inside)
    if inspect.isclass(origin) and issubclass(origin, tuple) and arguments[1:] != (...,):
        return tuple(_sample(each, inside) for each in arguments)
    if inspect.isclass(origin) and issubclass(origin, typing.Mapping):
        return {_sample(arguments[0], inside): _sample(arguments[1], inside)}
    if inspect.isclass(origin) and issubclass(origin, typing.Collection):
        made: Any = tuple if inspect.isabstract(origin) else origin
        return made(() if arguments[0] in inside else (_sample(arguments[0], inside),))
    raise AssertionError(f"no sample of {kind}: is this a service?")


def _made(value: type, inside: tuple[type, ...] = ()) -> Any:
    hints = typing.get_type_hints(value)
    names = inspect.signature(value).parameters
    return value(**{name: _sample(hints[name], (*inside, value)) for name in names})


@pytest.mark.parametrize(
    "value", [each for each in _classes(_is_value) if each.__name__ not in _SERVICES], ids=lambda value: value.__name__
)
def test_a_value_is_the_same_after_it_was_pickled(value: type) -> None:
    before = _made(value)
    after = pickle.loads(pickle.dumps(before))
    assert type(after) is value
    # Errors are equal to nothing but themselves.
    assert after == before or repr(after) == repr(before)


def test_every_service_is_still_there() -> None:
    assert {each.__name__ for each in _classes(_is_value)} >= _SERVICES.keys()


@pytest.mark.parametrize("model", _MODELS, ids=lambda model: type(model).__name__)
def test_a_model_is_the_same_after_it_was_pickled(model: BaseModel) -> None:
    assert pickle.loads(pickle.dumps(model)) == model


def test_every_model_is_among_those_that_are_pickled() -> None:
    tested = {type(found) for model in _MODELS for found in _models_in(model)}
    models = _classes(lambda found: issubclass(found, StrictModel))
    assert [found.__name__ for found in models if not any(issubclass(each, found) for each in tested)] == []


def _models_in(value: Any) -> Iterator[BaseModel]:
    if isinstance(value, BaseModel):
        yield value
        for _, inner in value:
            yield from _models_in(inner)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _models_in(inner)
    elif isinstance(value, tuple):
        for inner in value:
            yield from _models_in(inner)


def test_a_storage_reaches_the_same_files_after_it_was_pickled() -> None:
    settings = {"s3.endpoint": "http://127.0.0.1:9", "s3.access-key-id": "a", "s3.secret-access-key": "b"}
    storage = Storage({**settings, "client.region": "eu-west-1"})
    storage.at("s3://bucket/key")  # opens a file system, which cannot be pickled

    copied: Storage = pickle.loads(pickle.dumps(storage))

    filesystem, path = copied.at("s3://bucket/key")
    assert (filesystem, path) == storage.at("s3://bucket/key")
