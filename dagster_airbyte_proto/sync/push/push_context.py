"""The services and the request of one push that holds its connection, for every step of it."""

import re
from collections.abc import Collection
from typing import NamedTuple

from dagster_airbyte_proto.checkpoints.deliveries import DeliveryStore
from dagster_airbyte_proto.checkpoints.store import Lease
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.connection.stream_names import shell_word
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.sync.commit.committer import Committer
from dagster_airbyte_proto.sync.connector.destination import Destination
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import LeaseRenewal
from dagster_airbyte_proto.sync.plan.stream_plan import Slice
from dagster_airbyte_proto.sync.push.job_interrupts import JobInterrupts
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.sync.run_options import RunOptions
from dagster_airbyte_proto.sync.state_server.component_values import ComponentRole
from dagster_airbyte_proto.sync.telemetry.delivery_metrics import NO_DELIVERY_METER, DeliveryMeter
from dagster_airbyte_proto.transforms.transform_choice import NO_ENRICHERS, Enrichers


class LandedRows(NamedTuple):
    """A person's statement that the first `landed` of `of` unknown rows have arrived."""

    landed: int
    of: int


class PushRequest(NamedTuple):
    """The request for a push: all streams of the connection, or those that are named.

    With `only_plans` nothing is sent, and `samples` rows of each kind are shown. `is_full` takes nothing for delivered.
    `retries_rejected` sends the rejected rows again, `retries_unknown` those of which nobody knows; with
    `unknown_landed` only those of them that have not landed, and the others count as delivered. Of a `partition` only
    its rows are pushed.
    """

    streams: Collection[str] | None = None
    only_plans: bool = False
    samples: int = 3
    is_full: bool = False
    retries_rejected: bool = False
    retries_unknown: bool = False
    partition: Slice | None = None
    unknown_landed: LandedRows | None = None

    @property
    def partition_key(self) -> str | None:
        return self.partition.key if self.partition else None

    @property
    def decides_unknown(self) -> bool:
        """True if it says what is to become of rows of which nobody knows whether they arrived."""
        return self.retries_unknown or self.unknown_landed is not None


def landed_of(text: str) -> LandedRows:
    """The `unknown_landed` of a request, as a person writes it. Raises ConfigError for anything else."""
    found = re.fullmatch(r"([0-9]{1,18})/([0-9]{1,18})", text)
    rows = LandedRows(int(found[1]), int(found[2])) if found else None
    if rows is None or rows.landed > rows.of:
        raise ConfigError(
            "reading how many unknown rows have landed",
            f"{text!r} is not N/M, the first N of the M rows that `airbyte-proto push unknown` lists",
        )
    return rows


def full_command(connection: str, stream: StreamId | str) -> str:
    """The command that sends all rows of a stream again."""
    return f"airbyte-proto push {connection} --full --streams {shell_word(stream)}"


def reset_command(connection: str, stream: StreamId | str) -> str:
    """The command that forgets all that a stream has sent."""
    return f"airbyte-proto state reset {connection} {shell_word(stream)}"


class DeliveryContext(NamedTuple):
    """A run that delivers rows to a destination: the services that it uses, and what it holds until it ends.

    `value_owners` are the roles in which other connectors keep values of the same streams.
    """

    destination: Destination
    options: RunOptions
    renewal: LeaseRenewal
    store: DeliveryStore
    sync_id: int
    value_owners: tuple[ComponentRole, ...] = ()
    meter: DeliveryMeter = NO_DELIVERY_METER

    @property
    def lease(self) -> Lease:
        return self.renewal.lease

    @property
    def connection(self) -> Connection:
        """The connection whose options say how rows are sent."""
        return self.destination.connection

    def is_cancelled(self) -> bool:
        """True once somebody has cancelled the run. Raises StateConflict if another run has taken over."""
        self.renewal.check()
        return self.options.cancel.is_set()


class PushContext(NamedTuple):
    """One push: its delivery, and what it needs beside that to plan the rows and to remember them."""

    engine: Engine
    delivery: DeliveryContext
    request: PushRequest
    committer: Committer
    log: RunLog
    interrupts: JobInterrupts
    enrichers: Enrichers = NO_ENRICHERS
