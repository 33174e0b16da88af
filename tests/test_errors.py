"""Every error of the package survives the way to another process, with all its fields."""

import copy
import inspect
import pickle
import traceback
from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import pytest

import dagster_airbyte_proto
from dagster_airbyte_proto.errors import ConnectorError, ProtoError, SchemaRefused, StagingError, mask_signatures

_VALUES: dict[str, Any] = {
    "doing": "reading a stream",
    "found": "found nothing",
    "remedy": "Try again.",
    "stream": "shop.users",
    "retryable": True,
    "mismatches": (("note", "string", "bigint"), ("email", "", "string")),
}
"""A value for each argument that an error takes. A new argument needs one too, unlike its default."""


def _all_errors() -> list[type[ProtoError]]:
    prefix = f"{dagster_airbyte_proto.__name__}."
    for module in walk_packages(dagster_airbyte_proto.__path__, prefix):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    return sorted({ProtoError, *_subclasses(ProtoError)}, key=lambda error: error.__qualname__)


def _subclasses(error: type[ProtoError]) -> Iterator[type[ProtoError]]:
    for below in error.__subclasses__():
        if below.__module__.startswith(dagster_airbyte_proto.__name__):
            yield below
            yield from _subclasses(below)


def _made(error: type[ProtoError]) -> ProtoError:
    return error(**{name: _VALUES[name] for name in inspect.signature(error).parameters})


@pytest.mark.parametrize("error", _all_errors(), ids=lambda error: error.__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_pickles_with_all_its_fields(error: type[ProtoError], protocol: int) -> None:
    before = _made(error)
    before.add_note("seen on executor 3")

    after = pickle.loads(pickle.dumps(before, protocol))

    assert type(after) is error
    assert vars(after) == vars(before)
    assert vars(after).keys() >= inspect.signature(error).parameters.keys()
    assert (after.args, str(after), after.retryable) == (before.args, str(before), before.retryable)


def test_an_error_of_a_user_pickles_too() -> None:
    after = pickle.loads(pickle.dumps(_QuotaError("reading a stream", limit=3)))

    assert (after.doing, after.found, after.limit) == ("reading a stream", "the quota of 3 is used up", 3)


def test_a_copy_of_an_error_has_its_fields() -> None:
    before = SchemaRefused("preparing a table", "1 column", mismatches=(("note", "string", "bigint"),))

    assert vars(copy.copy(before)) == vars(before)


class _QuotaError(ConnectorError):
    def __init__(self, doing: str, *, limit: int) -> None:
        super().__init__(doing, f"the quota of {limit} is used up")
        self.limit = limit


def test_signatures_of_urls_are_in_no_error_and_in_none_that_led_to_it() -> None:
    said = "403 for http://acme/lake/a?se=1&sig=aGVsbG8%3D&sp=r and 'http://acme/b?sig=abc'"
    masked = "403 for http://acme/lake/a?se=1&sig=***&sp=r and 'http://acme/b?sig=***'"
    try:
        try:
            raise OSError(13, said)
        except OSError as error:
            raise StagingError("writing", said) from error
    except StagingError as error:
        raised = error
    assert raised.found == masked
    mask_signatures(raised)
    assert "aGVsbG8" not in "".join(traceback.format_exception(raised))
    assert masked in str(raised.__cause__)
