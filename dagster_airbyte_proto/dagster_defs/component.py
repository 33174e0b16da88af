"""The Dagster component for a connection: a YAML file in a `dg` project. Its component state is the catalog."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import dagster as dg
from dagster.components.core.context import ComponentDeclLoadContext
from dagster.components.resolved.core_models import (
    MultiRunBackfillPolicyModel,
    SingleRunBackfillPolicyModel,
    resolve_backfill_policy,
)
from dagster.components.utils.defs_state import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from dagster_shared.serdes.objects.models.defs_state_info import DefsStateManagementType
from pydantic import GetJsonSchemaHandler
from pydantic_core import CoreSchema

from dagster_airbyte_proto.connection import OTHERS, Connection
from dagster_airbyte_proto.connection.document import Document
from dagster_airbyte_proto.connection.validation import validated
from dagster_airbyte_proto.dagster_defs.automation.discovery import (
    FindKeys,
    build_partition_discovery_sensor,
    files_found,
    namespaces_offered,
    streams_offered,
)
from dagster_airbyte_proto.dagster_defs.definitions.asset_streams import check_makes_assets
from dagster_airbyte_proto.dagster_defs.definitions.assets import IncludedMetadata, build_connector_assets
from dagster_airbyte_proto.dagster_defs.definitions.checks import ONLY_NULLED, StreamChecks
from dagster_airbyte_proto.dagster_defs.definitions.component_fields import (
    Checks,
    PartitionDiscovery,
    Partitions,
    Retries,
    TableSensor,
    resolved_checks,
    resolved_partitions,
    resolved_retries,
)
from dagster_airbyte_proto.dagster_defs.definitions.former_catalog import former_catalog
from dagster_airbyte_proto.dagster_defs.definitions.saved_catalog import saved_catalog
from dagster_airbyte_proto.dagster_defs.definitions.scaffolding import ConnectorScaffolder
from dagster_airbyte_proto.dagster_defs.definitions.translator import (
    StreamTranslator,
    StreamTranslatorData,
    TableFormat,
)
from dagster_airbyte_proto.dagster_defs.deployment import deployment_outside_run
from dagster_airbyte_proto.dagster_defs.partitions import newest_slice
from dagster_airbyte_proto.dagster_defs.push.assets import build_push_assets
from dagster_airbyte_proto.dagster_defs.push.delivered_tables import build_push_tables
from dagster_airbyte_proto.dagster_defs.push.push_checks import ONLY_REJECTS
from dagster_airbyte_proto.dagster_defs.push.table_sensor import build_table_sensor
from dagster_airbyte_proto.dagster_defs.push.translator import PushTranslator, PushTranslatorData
from dagster_airbyte_proto.errors import REFRESH_COMPONENTS, ConfigError
from dagster_airbyte_proto.project_folder import home_folder
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.connector.answer_cache import write_message
from dagster_airbyte_proto.sync.connector.catalog_changes import in_former_order
from dagster_airbyte_proto.sync.connector.launcher_choice import ConnectorOptions
from dagster_airbyte_proto.sync.connector.opened_connector import opened_source
from dagster_airbyte_proto.sync.engine import Engine

_FOR_PUSHES = ("deps", "table_sensor")
_FOR_SYNCS = ("partition_discovery", "include_metadata", "sample_rows", "spark_catalog")
_LOG = logging.getLogger("dagster.airbyte_proto")
_REFRESH = f"Run `{REFRESH_COMPONENTS}`."


class _ConnectionSchema:
    """The connection's JSON schema, for editors and `dg docs`. The name is optional; it defaults to the folder's."""

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(Connection.__pydantic_core_schema__))
        return {**schema, "required": [name for name in schema["required"] if name != "name"]}


def _connection(context: dg.ResolutionContext, written: Mapping[str, Any]) -> Connection:
    folder = _folder(context)
    document = Document(f"connection in {folder}", {"name": folder.name, **written}, {})
    return validated(Connection, document, folder=folder)


def _connection_of_file(context: dg.ResolutionContext, file: str) -> Connection:
    return Connection.from_file(_folder(context) / file)


def _path(context: dg.ResolutionContext, file: str | None) -> Path | None:
    return None if file is None else _folder(context) / file


def _with_absolute_paths(context: dg.ResolutionContext, model: PartitionDiscovery | None) -> PartitionDiscovery | None:
    """The same settings with absolute paths. Raises ConfigError unless exactly one way to find keys is named."""
    if model is None:
        return None
    named = ("files", "namespaces_of", "streams_of")
    given = {name: getattr(model, name) for name in named if getattr(model, name) is not None}
    if len(given) != 1:
        found = f"partition_discovery has {len(given)} of {', '.join(named)}"
        raise ConfigError("loading a ConnectorComponent", found, remedy="Name exactly one of them.")
    return model.model_copy(update={name: str((_folder(context) / path).resolve()) for name, path in given.items()})


def _folder(context: dg.ResolutionContext) -> Path:
    return ComponentDeclLoadContext.from_resolution_context(context).path


def _variables(data: StreamTranslatorData | PushTranslatorData) -> Mapping[str, Any]:
    found = {"data": data, "connection": data.connection.name}
    if isinstance(data, PushTranslatorData):
        return {**found, "stream": data.stream, "table": data.options.table}
    return {**found, "stream": data.stream.id, "table": data.table}


def _state_beside_the_component() -> DefsStateConfigArgs:
    # Dagster's default would start the connector at each start of `dg dev`.
    return DefsStateConfigArgs(management_type=DefsStateManagementType.LOCAL_FILESYSTEM, refresh_if_dev=False)


# Dagster would inspect the Connection model and fail on types that its own models do not have: hence Any, and a plain
# mapping as the model. Dagster's own templates are switched off in it, because they would try to fill
# `{{ partition.start }}`.
_InlineConnection = Annotated[
    Any,
    dg.Resolver(
        _connection,
        model_field_type=Annotated[dict[str, Any], _ConnectionSchema()],
        description="The connection, as in a connection file. Paths are relative to the component's folder.",
        inject_before_resolve=False,
    ),
]
_ConnectionFile = Annotated[
    Any,
    dg.Resolver(
        _connection_of_file,
        model_field_type=str,
        description="A connection file; the path is relative to the component's folder.",
        examples=["../../../../connections/shop.yaml"],
    ),
]


@dg.scaffold_with(ConnectorScaffolder)
@dataclass
class ConnectorComponent(dg.StateBackedComponent, dg.Resolvable):
    """Makes every stream of a connection an asset: in a Spark table, or pushed to a destination.

    `dg utils refresh-defs-state` discovers the streams; loading definitions never starts the connector. Before the
    first refresh, the assets are the streams that the connection names, without columns. The project provides the
    resources: a ConnectorResource `connector` and a SparkTableIOManager `io_manager`, or under the keys given here.

    The streams of a connection with a `push` need no refresh. `deps` names upstream assets for them, above all for one
    that reads a query. With a `table_sensor` they are pushed as soon as their tables have moved.
    """

    connection: _InlineConnection = None
    connection_file: _ConnectionFile = None
    translation: (
        Annotated[
            TranslationFn[StreamTranslatorData | PushTranslatorData],
            TranslationFnResolver[StreamTranslatorData | PushTranslatorData](_variables),
        ]
        | None
    ) = None
    deps: Mapping[str, list[str]] | None = None
    table_sensor: TableSensor | None = None
    partitions: Annotated[
        dg.PartitionsDefinition[Any] | None, dg.Resolver(resolved_partitions, model_field_type=Partitions)
    ] = None
    partition_discovery: Annotated[
        PartitionDiscovery | None, dg.Resolver(_with_absolute_paths, model_field_type=PartitionDiscovery)
    ] = None
    backfill_policy: Annotated[
        dg.BackfillPolicy | None,
        dg.Resolver(
            resolve_backfill_policy, model_field_type=SingleRunBackfillPolicyModel | MultiRunBackfillPolicyModel
        ),
    ] = None
    checks: Annotated[StreamChecks | None, dg.Resolver(resolved_checks, model_field_type=Checks)] = ONLY_NULLED
    include_metadata: list[IncludedMetadata] = field(default_factory=list)
    sample_rows: int = 0
    retry_policy: Annotated[dg.RetryPolicy | None, dg.Resolver(resolved_retries, model_field_type=Retries)] = None
    pool: str | None = None
    op_tags: Mapping[str, Any] | None = None
    spark_catalog: str = ""
    table_format: TableFormat = "iceberg"
    connector_key: str = "connector"
    io_manager_key: str = "io_manager"
    home: Annotated[Path | None, dg.Resolver(_path, model_field_type=str)] = None
    settings: Annotated[Path | None, dg.Resolver(_path, model_field_type=str)] = None
    defs_state: ResolvedDefsStateConfig = field(default_factory=_state_beside_the_component)

    def __post_init__(self) -> None:
        if (self.connection is None) == (self.connection_file is None):
            raise ConfigError(
                "loading a ConnectorComponent",
                "it has no connection" if self.connection is None else "it has two connections",
                remedy="Give it either connection or connection_file.",
            )
        if unfit := [name for name in self._unfit if getattr(self, name)]:
            kind = "synced" if self.connected.push is None else "pushed"
            found = f"{', '.join(unfit)}: not for streams that are {kind}"
            raise ConfigError("loading a ConnectorComponent", found, remedy="Leave that out of the attributes.")

    @property
    def connected(self) -> Connection:
        """The connection, from `connection` or `connection_file`."""
        found = self.connection or self.connection_file
        assert isinstance(found, Connection)
        return found

    @property
    def _unfit(self) -> Sequence[str]:
        """The fields that mean nothing for this connection."""
        return _FOR_PUSHES if self.connected.push is None else _FOR_SYNCS

    @property
    def defs_state_config(self) -> DefsStateConfig:
        default_key = f"{type(self).__name__}[{self.connected.name}]"
        return DefsStateConfig.from_args(self.defs_state, default_key=default_key)

    def get_asset_spec(self, data: StreamTranslatorData) -> dg.AssetSpec:
        """Returns the asset of a stream, after `translation`. Override it as in a StreamTranslator."""
        spec = StreamTranslator().get_asset_spec(data)
        return self.translation(spec, data) if self.translation else spec

    def get_push_spec(self, data: PushTranslatorData) -> dg.AssetSpec:
        """Returns the asset of a pushed stream, after `translation`. Override it as in a PushTranslator."""
        spec = PushTranslator().get_asset_spec(data)
        return self.translation(spec, data) if self.translation else spec

    def write_state_to_path(self, state_path: Path) -> None:
        """Discovers the streams and saves the catalog, if assets can be made from it. Partitioned assets are discovered
        with the newest partition. The streams of a push stand in its connection: there is nothing to discover."""
        if self.connected.push is not None:
            write_message(state_path, b"{}")
            return
        settings = Settings.load(home_folder(self.home), self.settings)
        settings.make_home()
        with (
            Engine(settings, connector_options=ConnectorOptions(deployment_outside_run)) as engine,
            opened_source(engine, self.connected, self._template_values()) as source,
        ):
            source.check_config()
            catalog = source.catalog(fresh=True)
        catalog = in_former_order(catalog, former_catalog(self.connected, self.defs_state_config, state_path))
        message = source.protocol.catalog_message(catalog)
        with TemporaryDirectory() as folder:
            unchecked = Path(folder) / "catalog.json"
            write_message(unchecked, message)
            check_makes_assets(self.connected, catalog, partial(self._stream_assets, unchecked))
        write_message(state_path, message)

    def _template_values(self) -> Mapping[str, str] | None:
        """The template values of the newest partition. None if only Dagster's instance knows the keys: there is no
        instance here."""
        if self.partitions is None:
            return {}
        newest = newest_slice(self.partitions)
        return newest.template_values if newest else None

    def build_defs_from_state(
        self,
        context: dg.ComponentLoadContext,  # noqa: ARG002 - as Dagster calls it
        state_path: Path | None,
    ) -> dg.Definitions:
        if self.connected.push is not None:
            pushes = self._push_assets()
            return dg.Definitions(
                assets=[pushes, *build_push_tables(pushes)], sensors=list(self._table_sensors(pushes))
            )
        if state_path is None:
            _LOG.warning(f"{_REFRESH} Until then, {self._before_refresh}.")
            if not self._names_streams:
                return dg.Definitions()
        try:
            assets = self._stream_assets(state_path)
        except ConfigError:
            if state_path is not None:  # Is it the state? Only a refresh mends that.
                saved_catalog(self.connected, catalog=state_path, remedy=_REFRESH)
            raise
        return dg.Definitions(assets=[assets], sensors=list(self._sensors(assets)))

    def _stream_assets(self, catalog: Path | None) -> dg.AssetsDefinition:
        return build_connector_assets(
            self.connected,
            connector_key=self.connector_key,
            include_metadata=self.include_metadata,
            sample_rows=self.sample_rows,
            translator=_ComponentTranslator(self),
            catalog=catalog,
            home=self.home,
            spark_catalog=self.spark_catalog,
            table_format=self.table_format,
            partitions_def=self.partitions,
            backfill_policy=self.backfill_policy,
            pool=self.pool,
            op_tags=self.op_tags,
            retry_policy=self.retry_policy,
            checks=self.checks,
            io_manager_key=self.io_manager_key,
        )

    def _push_assets(self) -> dg.AssetsDefinition:
        return build_push_assets(
            self.connected,
            connector_key=self.connector_key,
            translator=_ComponentPushTranslator(self),
            deps={
                name: [dg.AssetKey.from_user_string(key) for key in keys] for name, keys in (self.deps or {}).items()
            },
            partitions_def=self.partitions,
            backfill_policy=self.backfill_policy,
            pool=self.pool,
            op_tags=self.op_tags,
            retry_policy=self.retry_policy,
            records_tables=True,
            checks=ONLY_REJECTS if self.checks is ONLY_NULLED else self.checks,
            io_manager_key=self.io_manager_key,
        )

    def _table_sensors(self, pushes: dg.AssetsDefinition) -> Iterator[dg.SensorDefinition]:
        written = self.table_sensor
        if written is not None:
            yield build_table_sensor(
                pushes,
                tables=written.tables,
                name=written.name,
                minimum_interval_seconds=written.minimum_interval_seconds,
                default_status=_sensor_status(is_running=written.running),
            )

    @property
    def _names_streams(self) -> bool:
        return any(name != OTHERS for name in self.connected.streams or ())

    @property
    def _before_refresh(self) -> str:
        name = self.connected.name
        if self._names_streams:
            return f"the assets of connection {name} are the streams that it names, without columns"
        return f"connection {name}, which names no stream, has no assets, and assets downstream of it do not load"

    def _sensors(self, assets: dg.AssetsDefinition) -> Iterator[dg.SensorDefinition]:
        written = self.partition_discovery
        if written is None:
            return
        yield build_partition_discovery_sensor(
            assets,
            find=self._finder(written),
            remove_gone=written.remove_gone,
            max_runs=written.max_runs,
            minimum_interval_seconds=written.minimum_interval_seconds,
            required_resource_keys=set() if written.files else {self.connector_key},
            default_status=_sensor_status(is_running=written.running),
        )

    def _finder(self, written: PartitionDiscovery) -> FindKeys:
        if written.files is not None:
            return files_found(written.files, quiet_seconds=written.quiet_seconds)
        offered = namespaces_offered if written.namespaces_of else streams_offered
        connection = Connection.from_file(written.namespaces_of or written.streams_of or "")
        return offered(connection, connector_key=self.connector_key)


def _sensor_status(*, is_running: bool) -> dg.DefaultSensorStatus:
    return dg.DefaultSensorStatus.RUNNING if is_running else dg.DefaultSensorStatus.STOPPED


class _ComponentTranslator(StreamTranslator):
    def __init__(self, component: ConnectorComponent) -> None:
        self._component = component

    def get_asset_spec(self, data: StreamTranslatorData) -> dg.AssetSpec:
        return self._component.get_asset_spec(data)


class _ComponentPushTranslator(PushTranslator):
    def __init__(self, component: ConnectorComponent) -> None:
        self._component = component

    def get_asset_spec(self, data: PushTranslatorData) -> dg.AssetSpec:
        return self._component.get_push_spec(data)
