"""Gives one run of a connection its tables: those of the engine, or the destination of a relay."""

from typing import NamedTuple

from dagster_airbyte_proto.checkpoints.store import StateStore
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.sync.connector.destination import Destination
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.lease import LeaseRenewal
from dagster_airbyte_proto.sync.push.push_context import DeliveryContext
from dagster_airbyte_proto.sync.relay.relay_tables import RelayTables
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.sync.run_options import RunOptions
from dagster_airbyte_proto.sync.state_server.component_values import ComponentRole
from dagster_airbyte_proto.sync.telemetry.delivery_metrics import NO_DELIVERY_METER, DeliveryMeter


def check_needs_no_destination(store: StateStore, connection: str) -> None:
    """Raises ConfigError if the connection has an announced load that goes to a destination."""
    for load in store.announced_loads(connection):
        if any(part.is_relayed for part in load.parts):
            raise ConfigError(
                f"recovering connection {connection}",
                f"load {load.load_id} goes to a destination, which only a sync reaches",
                remedy=f"Run `airbyte-proto sync {connection}`: it goes on with the load where it stands.",
            )


class LeasedRun(NamedTuple):
    """A run that has its lease and has not begun to plan."""

    options: RunOptions
    renewal: LeaseRenewal
    log: RunLog
    meter: DeliveryMeter = NO_DELIVERY_METER


def destination_of_run(engine: Engine, connection: Connection, log: RunLog) -> Destination | None:
    """Returns the destination of a relay; None for tables. Raises ConfigError for one that cannot be used."""
    to = connection.relay_destination
    if to is None:
        return None
    destination = engine.destination(to, log)
    destination.use_stored_config(engine.store)
    destination.check_config()
    return destination


def engine_of_run(engine: Engine, destination: Destination | None, run: LeasedRun, *, retries_unknown: bool) -> Engine:
    """Returns the engine with the tables of this run."""
    if destination is None:
        return engine
    context = DeliveryContext(
        destination,
        run.options,
        run.renewal,
        engine.store,
        sync_id=run.renewal.lease.fence,
        value_owners=(ComponentRole.SOURCE,),  # a source that is a component keeps values of the streams, too
        meter=run.meter,
    )
    folder = engine.settings.staging_folder / "relay" / destination.connection.name
    return engine.with_tables(RelayTables(context, folder, retries_unknown=retries_unknown))
