"""The streams and values that a command about states names, and the lease under which it changes them.

Slow modules are imported when they are used; see call.py."""

import json
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from dagster_airbyte_proto.checkpoints.slot import partition_option
from dagster_airbyte_proto.cli.call import Call, Target
from dagster_airbyte_proto.cli.commands.states.state_view import states_of
from dagster_airbyte_proto.cli.output import plain
from dagster_airbyte_proto.errors import ConfigError

if TYPE_CHECKING:
    from dagster_airbyte_proto.checkpoints.deliveries import DeliveryStore
    from dagster_airbyte_proto.checkpoints.store import Lease, StateChange, StateStore, StoredState
    from dagster_airbyte_proto.model import StreamId

_MAX_NAMED = 10
_MAX_CHANGES = 10_000


@contextmanager
def hand_lease(call: Call, store: "StateStore", name: str, partition: str | None = None) -> "Iterator[Lease]":
    """Leases the connection, or one partition of it, for a change by hand."""
    from dagster_airbyte_proto.checkpoints.slot import slot_by_hand
    from dagster_airbyte_proto.sync.lease import acquire_lease

    run_id = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-hand-{uuid4().hex[:5]}"
    slot = slot_by_hand(partition or "")
    with acquire_lease(store, name, run_id, call.settings().lease_seconds, slot=slot) as keeper:
        yield keeper.lease


def check_known_partition(store: "StateStore", target: Target, partition: str | None, doing: str) -> None:
    """Raises ConfigError if a partition is named of which nothing is stored."""
    from dagster_airbyte_proto.sync.maintenance.stored_partitions import check_partition

    if partition is not None:
        check_partition(store, target.name, partition, doing)


def check_partition_to_change(store: "StateStore", target: Target, partition: str | None, doing: str) -> None:
    """Raises ConfigError if a partition is named whose states nobody can change by hand."""
    from dagster_airbyte_proto.sync.maintenance.stored_partitions import check_has_partitioned_states

    if partition is not None:
        check_has_partitioned_states(store, target.name, doing)
        check_known_partition(store, target, partition, doing)


def other_partitions_line(store: "StateStore", target: Target) -> list[str]:
    """A line that says which states a change without a partition has left alone; none if there are no such states."""
    from dagster_airbyte_proto.sync.maintenance.stored_partitions import named_partitions, partitions_with_state

    keys = partitions_with_state(store, target.name)
    text = f"The states of partitions stay: {named_partitions(keys)}. --partition KEY changes those of one."
    return [text] if keys else []


def displaced_line(target: Target, before: "Sequence[StoredState]", change: "StateChange") -> list[str]:
    """A line that says which states of streams a state of the whole connection has taken the place of; none if there
    were no such states."""
    streams = [str(each.state.stream) for each in before if each.state.stream is not None]
    if change.stream is not None or change.state is None or not streams:
        return []
    more = f" and {len(streams) - _MAX_NAMED} more" if len(streams) > _MAX_NAMED else ""
    back = f"airbyte-proto state rollback {target.name} --to {change.version - 1}{partition_option(change.partition)}"
    shown = ", ".join(streams[:_MAX_NAMED])
    return [f"It has taken the place of the states of {shown}{more}: `{back}` brings them back."]


def rollback_line(store: "StateStore", target: Target, version: int) -> str | None:
    """A warning where states go to a version after which they were rolled back: if tables went with them to before it,
    the states are ahead of their rows now. None where there was no such rollback."""
    changes = store.history(target.name, limit=_MAX_CHANGES, with_states=False)
    if not any(each.version > version and each.why == "rollback" for each in changes):
        return None
    command = f"airbyte-proto state rollback {target.name} --to {version} --tables"
    return (
        f"warning: the states were rolled back since version {version}. If tables went back with them, to before that"
        f" version, they lack rows of it that no sync reads again: `{command}` brings these back."
    )


def stream_of(name: str, namespace: str | None = None) -> "StreamId":
    from dagster_airbyte_proto.model import StreamId

    return StreamId.of(name, namespace)


def known_stream(name: str, known: "Sequence[StreamId | None]", *, is_shared: bool = False) -> "StreamId":
    """The stream with this full name, or with this bare name if only one stream has it. An error says so if the known
    streams are those of a state that all share."""
    from dagster_airbyte_proto.connection.stream_names import streams_named, unmistakable_name

    streams = list(dict.fromkeys(stream for stream in known if stream is not None))
    found = streams_named(name, streams)
    if len(found) == 1:
        return found[0]
    named = ", ".join(map(unmistakable_name, found) if found else map(str, streams))
    if is_shared and not found:
        raise ConfigError(
            "looking up a stream's state",
            f"the streams share one state, and it names no stream {name!r}",
            remedy=f"It names {named or 'none'}. Without a stream, `airbyte-proto state show` shows all of it.",
        )
    problem = f"there are {len(found)} streams {name!r}" if found else f"there is no state of a stream {name!r}"
    raise ConfigError("looking up a stream's state", problem, remedy=f"There are states of: {named or 'none'}")


def stream_to_set(
    store: "DeliveryStore", target: Target, name: str, namespace: str | None, partition: str | None
) -> "StreamId":
    """The stream to set: one of which the store has anything is found by its full name, or by its bare one; a new one
    needs its `namespace`, and is warned about: a typo would be a stream of its own from then on."""
    from dagster_airbyte_proto.connection.stream_names import full_name, parsed_name, streams_named

    known = _known_streams(store, target, partition)
    if namespace is None:
        # By the end of a name only where that is all of it: `items` may be a new stream beside `orders.items`.
        named = [
            each
            for each in streams_named(name, known)
            if '"' in name or name in (full_name(each), str(each), each.name)
        ]
        if named:
            return known_stream(name, sorted(named, key=str))
    quoted = parsed_name(name) if '"' in name and namespace is None else None
    stream = quoted or stream_of(name, namespace)
    if stream not in known:
        text = f"nothing is known of a stream {stream} of {target.name}. Is its name right, and its --namespace?"
        click.echo(f"warning: {plain(text)}", err=True)
    return stream


def _known_streams(store: "DeliveryStore", target: Target, partition: str | None) -> "set[StreamId]":
    """The streams of a connection of which the store has anything."""
    changed = {change.stream for change in store.history(target.name, limit=_MAX_CHANGES, with_states=False)}
    known = {*store.stream_profiles(target.name), *store.deliveries(target.name)}
    known |= {stream for stream in changed if stream is not None}
    for stored in store.states(target.name, partition=partition or ""):
        if stored.state.stream is None:
            known |= states_of(target, store).values_by_stream(stored.state).keys()
    return known


def check_position(target: Target, store: "StateStore", stream: "StreamId | None", value: Any) -> None:
    """Raises ConfigError for a state from which no push goes on. Nothing is checked of what is no push."""
    import msgspec

    from dagster_airbyte_proto.connection.stream_names import shell_word
    from dagster_airbyte_proto.loads.push import PushPosition
    from dagster_airbyte_proto.protocols.lookup import PUSH

    connection = target.connection
    if store.protocol(target.name) != PUSH if connection is None else connection.push is None:
        return
    doing = f"setting the state of connection {target.name}"
    if stream is None:
        found = "it is a push, and each of its streams has a position of its own"
        raise ConfigError(doing, found, remedy=f"Name the stream: airbyte-proto state set {target.name} STREAM VALUE")
    try:
        msgspec.convert(value, PushPosition)
    except msgspec.ValidationError as error:
        remedy = (
            f"Write it as `airbyte-proto state show {target.name} {shell_word(stream)} --json` prints it. To send all"
            f" rows again: airbyte-proto state reset {target.name} {shell_word(stream)}"
        )
        raise ConfigError(doing, f"it is no position of a push: {error}", remedy=remedy, stream=str(stream)) from None


def json_text(written: str, named: str) -> str:
    """Returns the JSON that a user has written, or has in a file."""
    doing = f"reading the {named}"
    if written.startswith("@"):
        doing = f"reading the {named} from {written[1:]}"
        try:
            written = Path(written[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(doing, str(getattr(error, "strerror", None) or "it is not UTF-8 text")) from error
    try:
        found = json.loads(written, parse_constant=refuse_constant, parse_float=_refuse_infinite)
        json.dumps(found, ensure_ascii=False).encode()  # not half a surrogate pair, of which "?" would be stored
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            doing, f"it is not JSON: {error}", remedy='Write JSON such as {"next": 5}, or @FILE.'
        ) from error
    return written.strip()


def check_not_masked(text: str, stored: Iterable[bytes]) -> None:
    """Raises ConfigError for a value that was copied from where secrets are masked. A `stored` one may have such a text
    of its own."""
    from dagster_airbyte_proto.masking import MASKED

    if MASKED in text and not any(MASKED.encode() in each for each in stored):
        found = f"it has {MASKED}, which stands for a secret where values are shown: the connector would get that"
        remedy = "Write the secret in its place. @FILE keeps it out of the shell's history."
        raise ConfigError("reading the new value", found, remedy=remedy)


def refuse_constant(name: str) -> Any:
    """Refuses NaN and Infinity, which Python reads as JSON and no connector does."""
    raise ValueError(f"{name} is no value of it")


def _refuse_infinite(number: str) -> float:
    """Most connectors read a number that is too large as Infinity, and write that back."""
    if math.isinf(found := float(number)):
        raise ValueError(f"no connector reads the number {number[:40]}")
    return found
