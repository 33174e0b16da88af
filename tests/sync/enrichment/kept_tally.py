"""An enrichment that numbers rows, from the number that it keeps by the state server."""

import sys
from typing import Any

from dagster_airbyte_proto.checkpoints.kept_values import Asset, ValueStore
from dagster_airbyte_proto.checkpoints.transform_states import stored_transform_states
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.state_server.memory_values import values_of_state

_LAUNCH = {"kind": "local", "command": [sys.executable, "-m", "dagster_airbyte_proto.testing.fake_enrichment"]}


def numbering(*, tallies: bool = True, **config: Any) -> dict[str, Any]:
    """The transform. Each row's `city` is its number among all rows of the stream so far."""
    connector = {"protocol": "syncmaven", "launch": _LAUNCH}
    return {
        "connector": connector,
        "config": {"tallies": tallies, "replies": 1, **config},
        "columns": {"city": "string"},
    }


def kept_tally(store: ValueStore, connection: str, stream: str) -> int:
    """The number that it keeps for a stream; 0 if it keeps none. Of several it is the highest."""
    return max(kept_tallies(store, connection, stream), default=0)


def kept_tallies(store: ValueStore, connection: str, stream: str) -> list[int]:
    """The numbers that the enrichments of a chain keep for a stream, in their order."""
    states = stored_transform_states(store, Asset(connection, StreamId.of(stream)))
    in_order = sorted(states, key=lambda each: each.transform)
    return [int(values_of_state(each.values).get(("rows",), b"0")) for each in in_order]
