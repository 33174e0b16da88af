"""Values cross processes: each one pickles, and is the same afterwards.

The samples are made from the annotations, so a new value is tested as soon as it is written. A tuple that holds a
service (a store, a process, a callback) is no value: it stands in `_SERVICES`.

Most tuples of the rooms that are not among `_ROOMS` hold files, arrays or Java's objects, and stay where they are made.
Those that are sent stand in `_SENT`.
"""

import inspect
import pickle
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import BaseModel

import dagster_airbyte_proto
from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.connection.validation import StrictModel
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.masking import UnmaskedText
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.staging.keys.dedup import LateRows, StagedKeys
from dagster_airbyte_proto.tables.abilities import Abilities
from dagster_airbyte_proto.tables.care import CompactionResult
from tests.samples import PLAIN_SAMPLES, is_value, made

_PACKAGE = f"{dagster_airbyte_proto.__name__}."
_ROOMS = ("model", "settings", "connection", "protocols", "launchers", "schema", "loads", "checkpoints", "sync")

_SENT: dict[type, str] = {
    Abilities: "of the driver's tables, with the order of a sync on an executor",
    CompactionResult: "of a table, with the result of its care",
    LateRows: "found by the process that has the tables, where another one stages (decision 0031)",
    StagedKeys: "of the process that stages, where another one has the tables",
    UnmaskedText: "of a connector, with its messages and the report of its end",
}
"""Values of other rooms, and where they are sent."""

_SERVICES = {
    "AlternativeForm": "annotates a field of a model, by its identity",
    "CallAnswer": "has an iterator",
    "ConnectorOptions": "has a callback",
    "ContainerHandle": "has the engine's client and open sockets",
    "ContainerOwner": "has a callback",
    "DeliveryContext": "has the store and the lease's renewal",
    "EnricherOptions": "has a cache, a callback, and the event that cancels the run",
    "Exchange": "has the pace that processes share, and the event that cancels the run",
    "Guardian": "has a process and its pipe",
    "DriverIdentity": "has a context of TLS",
    "InstallerWatch": "has a descriptor and a callback",
    "LaunchOptions": "has callbacks",
    "LaunchableConnector": "has a launcher",
    "Lease": "belongs to the process that acquired it",
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
    "RunPlace": "has the folder of a run, which its end removes",
    "RemoteObject": "has the driver's own objects",
    "ServedValues": "has the store",
    "StoredRowCache": "has the store and the lease's renewal",
    "StreamReading": "has the context of a run",
    "SyncOptions": "has the log and a listener",
    "SyncContext": "has the engine and the lease's renewal",
}
"""Classes that look like values, and why each stays in its process."""

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


PLAIN_SAMPLES[Connection] = _connection(_LAUNCHES[0])


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


def _room(module: str) -> str:
    return module.removeprefix(_PACKAGE).partition(".")[0]


def _classes(is_wanted: Callable[[type], bool]) -> Iterator[type]:
    for module in walk_packages(dagster_airbyte_proto.__path__, _PACKAGE):
        if _room(module.name) not in _ROOMS:
            continue
        for name, found in vars(import_module(module.name)).items():
            is_here = inspect.isclass(found) and found.__module__ == module.name and not name.startswith("_")
            if is_here and is_wanted(found):
                yield found


_VALUES = [each for each in _classes(is_value) if each.__name__ not in _SERVICES]


@pytest.mark.parametrize("value", [*_VALUES, *_SENT], ids=lambda value: value.__name__)
def test_a_value_is_the_same_after_it_was_pickled(value: type) -> None:
    before = made(value)
    after = pickle.loads(pickle.dumps(before))
    assert type(after) is value
    # Errors are equal to nothing but themselves.
    assert after == before or repr(after) == repr(before)


def test_a_value_of_another_room_that_is_sent_within_one_is_among_them() -> None:
    within = {part for value in _VALUES for hint in get_type_hints(value).values() for part in _classes_in(hint)}
    others = {each for each in within if each.__module__.startswith(_PACKAGE) and _room(each.__module__) not in _ROOMS}
    assert {each.__name__ for each in others if is_value(each)} <= {each.__name__ for each in _SENT}


def _classes_in(hint: Any) -> Iterator[type]:
    if inspect.isclass(hint):
        yield hint
    for each in get_args(hint):
        yield from _classes_in(each)


def test_a_lease_stays_in_its_process() -> None:
    with pytest.raises(TypeError, match="belongs to the process that acquired it"):
        pickle.dumps(made(Lease))


def test_every_service_is_still_there() -> None:
    assert {each.__name__ for each in _classes(is_value)} >= _SERVICES.keys()


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
