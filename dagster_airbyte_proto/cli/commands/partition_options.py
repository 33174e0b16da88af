"""`--partition` and `--window`, which choose a partition of a connection, and `--partition` of a command about states.

Slow modules are imported when a command runs; see call.py."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from dagster_airbyte_proto.sync.plan.stream_plan import Slice

_WINDOW = "--window"


def partition_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the two options, as `partition` and `window`."""
    function = click.option(
        _WINDOW,
        metavar="NAME=VALUE",
        multiple=True,
        help="Values of other templates in the config: start=…, end=…, or a dimension of the partition.",
    )(function)
    return click.option("--partition", metavar="KEY", help="Only this partition, by its key in Dagster.")(function)


def states_partition(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--partition` alone, as `partition`: that of a command about what is stored of it."""
    return click.option(
        "--partition", metavar="KEY", callback=_not_empty, help="Only what is of this partition, by its key."
    )(function)


def partition_slice(partition: str | None, window: Sequence[str]) -> "Slice | None":
    """The partition that the options name, if any."""
    from dagster_airbyte_proto.sync.plan.stream_plan import Slice

    words = dict(_word(text) for text in window)
    if partition is None:
        if words:
            raise click.UsageError(f"{_WINDOW} needs --partition")
        return None
    return Slice(str(_not_empty(None, None, partition)), words)


def _not_empty(_context: click.Context | None, _parameter: click.Parameter | None, key: str | None) -> str | None:
    if key == "":
        raise click.BadParameter("the key is empty", param_hint="--partition")
    return key


def _word(text: str) -> tuple[str, str]:
    name, is_there, value = text.partition("=")
    if not is_there or not name.strip():
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=_WINDOW)
    return name.strip(), value
