"""What crosses the channel arrives as it was."""

import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from dagster_airbyte_proto import errors
from dagster_airbyte_proto.checkpoints.deliveries import DeliveryStore
from dagster_airbyte_proto.errors import ProtoError
from dagster_airbyte_proto.model import Stream, StreamId
from dagster_airbyte_proto.sync.cluster.sync_order import SyncDriver, SyncOrder
from dagster_airbyte_proto.sync.cluster.values import as_remote, decoder, encoded, from_remote
from dagster_airbyte_proto.sync.report import StreamReport
from dagster_airbyte_proto.tables.writer import SupportsBranches, SupportsKeyLookup, TableWriter
from tests.samples import sample


def _kinds() -> Iterator[tuple[str, Any]]:
    """The types of all arguments and answers, but for functions, which stay where they are."""
    for interface in (DeliveryStore, TableWriter, SupportsKeyLookup, SupportsBranches, SyncDriver):
        for name, method in inspect.getmembers(interface, inspect.isfunction):
            for argument, kind in typing.get_type_hints(method).items() if not name.startswith("_") else ():
                if kind is not type(None) and typing.get_origin(kind) not in (Callable, Iterator):
                    yield f"{interface.__name__}.{name}.{argument}", kind


def _as_tuples(value: Any) -> Any:
    """The value with tuples in the place of lists: a declared sequence may arrive as either."""
    if isinstance(value, list | tuple):
        return tuple(map(_as_tuples, value))
    return value


@pytest.mark.parametrize("kind", [pytest.param(kind, id=name) for name, kind in _kinds()])
def test_every_argument_and_answer_arrives_as_it_was(kind: Any) -> None:
    before = sample(kind)
    after = decoder(kind).decode(encoded(before))
    if hasattr(before, "equals"):
        assert before.equals(after)
    else:
        assert _as_tuples(after) == _as_tuples(before)


def test_integers_of_any_size_in_schemas_and_states_arrive_as_they_were() -> None:
    integers = {"maximum": 10**62, "minimum": -(10**62), "id": 10**20, "least": -(1 << 63), "rest": [1.5, None, "x"]}
    streams = [Stream(StreamId.of("users"), integers)]
    assert decoder(list[Stream]).decode(encoded(streams)) == streams
    report = msgspec.structs.replace(sample(StreamReport), state=integers, state_before=10**20)
    after = decoder(StreamReport).decode(encoded(report))
    assert (after.state, after.state_before) == (integers, 10**20)


@pytest.mark.parametrize(
    "kind", [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, ProtoError)]
)
def test_an_error_arrives_with_its_class_and_fields(kind: type[ProtoError]) -> None:
    before = kind("committing", "it is locked", remedy="Wait.")
    vars(before)["mismatches"] = (("id", "int", "string"),)
    after = from_remote(as_remote(before))
    assert (type(after), vars(after), str(after)) == (kind, vars(before), str(before))


def test_another_error_becomes_one_of_ours_that_says_where_it_came_from() -> None:
    try:
        raise OSError("no space")
    except OSError as error:
        after = from_remote(as_remote(error))
    assert type(after) is errors.InternalError
    assert "OSError: no space" in str(after)
    assert "test_values.py" in str(after)


def test_secrets_of_an_order_are_shown_by_no_repr() -> None:
    order = sample(SyncOrder)
    secret = order.connection._replace(secrets={"env:PASSWORD": "correct-horse"})
    assert "correct-horse" not in repr(order._replace(connection=secret))
