"""Checks the streams of a connection against a catalog before any sync, and finds every fault.

A sync plans all of its streams at once, and stops at the first name that the catalog does not have. Here each stream
that the connection names is planned alone, by the same code, so that a person corrects the file once.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from dagster_airbyte_proto.connection import OTHERS, Connection
from dagster_airbyte_proto.connection.streams import StreamOptions
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import Catalog, FieldPath, PlannedStream, StreamId
from dagster_airbyte_proto.protocols.events import SchemaEvent
from dagster_airbyte_proto.sync.connector.destination import Destination
from dagster_airbyte_proto.sync.plan.format_check import streams_unfit_for_format
from dagster_airbyte_proto.sync.plan.relay_check import streams_refused_by_destination
from dagster_airbyte_proto.sync.plan.stream_choice import unknown_transformed_streams
from dagster_airbyte_proto.sync.plan.stream_clashes import clashing_streams
from dagster_airbyte_proto.sync.plan.stream_plan import SyncRequest, plan_streams
from dagster_airbyte_proto.sync.plan.stream_schemas import with_stored_schemas
from dagster_airbyte_proto.tables.abilities import Abilities
from dagster_airbyte_proto.transforms.landed_columns import columns_of_asset, key_fault_in_table, landed_columns


def asset_faults(connection: Connection, catalog: Catalog) -> list[ConfigError]:
    """Returns the errors for which no assets can be made from the catalog: a catalog that is saved with one stops a
    whole code location."""
    streams = connection.streams
    by_name = {
        name: _asset_faults_of(connection, catalog, {name: its})
        for name, its in (streams or {}).items()
        if name != OTHERS
    }
    faults = [fault for found in by_name.values() for fault in found]
    sound = None if streams is None else {name: its for name, its in streams.items() if not by_name.get(name)}
    return faults if sound == {} else [*faults, *_asset_faults_of(connection, catalog, sound)]


def _asset_faults_of(
    connection: Connection, catalog: Catalog, streams: Mapping[str, StreamOptions] | None
) -> list[ConfigError]:
    try:
        chosen = plan_streams(connection.model_copy(update={"streams": streams}), catalog, SyncRequest())
    except ConfigError as error:
        return [error]
    faults = [*chosen.faults.values()]
    for each in chosen.sound:
        try:
            if each.id not in catalog.unreadable:
                columns_of_asset(each)
        except ConfigError as error:
            faults.append(error)
    return faults


def lasting_refusals(connection: Connection, catalog: Catalog) -> list[ConfigError]:
    """Returns the errors of the streams that syncs refuse as long as their source offers them so. They stop no assets:
    call it for a catalog without `asset_faults`."""
    planned = plan_streams(connection, catalog, SyncRequest()).sound
    faults = (key_fault_in_table(each) for each in planned)
    return [*clashing_streams(connection, catalog, planned).values(), *(each for each in faults if each is not None)]


class StreamCheck:
    """Checks the streams of one connection. `schemas` are those that the connector sent last. Those of a relay are
    checked against its `destination` too."""

    def __init__(
        self,
        connection: Connection,
        catalog: Catalog,
        abilities: Abilities,
        schemas: Mapping[StreamId, SchemaEvent],
        destination: Destination | None = None,
    ) -> None:
        self._connection = connection
        self._catalog = catalog
        self._abilities = abilities
        self._schemas = schemas
        self._destination = destination

    def faults(self) -> list[ConfigError]:
        """Returns the errors of the streams that a sync would refuse."""
        streams = self._connection.streams
        by_name = {
            name: self._faults_of({name: its}, its.cursor) for name, its in (streams or {}).items() if name != OTHERS
        }
        faults = [fault for found in by_name.values() for fault in found]
        sound = None if streams is None else {name: its for name, its in streams.items() if not by_name.get(name)}
        if sound is None or sound:
            # Together, for the streams that no name of its own chooses, and for those that clash with another one.
            faults += self._faults_of(sound)
        return [*faults, *unknown_transformed_streams(self._connection, self._catalog)]

    def _faults_of(
        self, streams: Mapping[str, StreamOptions] | None, cursor: FieldPath | None = None
    ) -> list[ConfigError]:
        connection = self._connection.model_copy(update={"streams": streams})
        try:
            chosen = plan_streams(connection, self._catalog, SyncRequest())
        except ConfigError as error:
            return [error]
        planned = chosen.sound
        if cursor:
            # A source that fixes its cursor ignores this one, which may be wrong all the same.
            planned = tuple(msgspec.structs.replace(each, cursor=cursor) for each in planned)
        clashing = clashing_streams(connection, self._catalog, planned)
        refused = {} if self._destination is None else streams_refused_by_destination(self._destination, planned)
        faults = [*chosen.faults.values(), *clashing.values(), *refused.values()]
        return [*faults, *self._faults_of_tables(planned)]

    def _faults_of_tables(self, planned: Sequence[PlannedStream]) -> Iterator[ConfigError]:
        for each in with_stored_schemas(planned, self._schemas):
            if unfit := streams_unfit_for_format(self._connection.name, [each], self._abilities):
                yield from unfit.values()
                continue
            try:
                landed_columns(each)
            except ConfigError as error:
                yield error
