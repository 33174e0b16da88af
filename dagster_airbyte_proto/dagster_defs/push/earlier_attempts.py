"""The streams that earlier attempts of the same run have pushed to their end, from the reports in the state store."""

from collections.abc import Mapping

import msgspec

from dagster_airbyte_proto.checkpoints.store import StateStore
from dagster_airbyte_proto.sync.report import SyncStatus


class _EarlierStream(msgspec.Struct, frozen=True):
    status: SyncStatus


class _EarlierPush(msgspec.Struct, frozen=True):
    """The fields that are read from the stored report."""

    streams: Mapping[str, _EarlierStream]


_EARLIER_PUSH = msgspec.json.Decoder(_EarlierPush)


def pushed_streams(store: StateStore, connection: str, run_id: str) -> frozenset[str]:
    """Returns their names. Their events are written: a retry leaves them out."""
    reports = map(_EARLIER_PUSH.decode, store.reports(connection, run_id))
    return frozenset(
        name for report in reports for name, each in report.streams.items() if each.status is SyncStatus.COMPLETE
    )
