"""A connection as a component: a YAML file in a `dg` project, whose state is what the connector offers."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
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
from dagster_airbyte_proto.dagster_defs.definitions.assets import IncludedMetadata, build_connector_assets
from dagster_airbyte_proto.dagster_defs.definitions.component_fields import (
    Checks,
    PartitionDiscovery,
    Partitions,
    Retries,
    resolved_checks,
    resolved_partitions,
    resolved_retries,
)
from dagster_airbyte_proto.dagster_defs.definitions.scaffolding import ConnectorScaffolder
from dagster_airbyte_proto.dagster_defs.definitions.translator import (
    StreamTranslator,
    StreamTranslatorData,
    TableFormat,
)
from dagster_airbyte_proto.dagster_defs.deployment import deployment_around
from dagster_airbyte_proto.dagster_defs.home import home_folder
from dagster_airbyte_proto.dagster_defs.partitions import sample
from dagster_airbyte_proto.dagster_defs.tables.checks import StreamChecks
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.connector.answer_cache import keep_message
from dagster_airbyte_proto.sync.connector.open_source import opened_source
from dagster_airbyte_proto.sync.engine import Engine

_LOG = logging.getLogger("dagster.airbyte_proto")


class _Written:
    """The connection's JSON schema, for editors and `dg docs`. Its name may be left out: the folder's is taken."""

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


def _discovery(context: dg.ResolutionContext, model: PartitionDiscovery | None) -> PartitionDiscovery | None:
    """The same with the paths as they are from anywhere."""
    if model is None:
        return None
    named = ("files", "namespaces_of", "streams_of")
    given = {name: getattr(model, name) for name in named if getattr(model, name) is not None}
    if len(given) != 1:
        raise ConfigError("loading a ConnectorComponent", f"partition_discovery has {len(given)} of {', '.join(named)}")
    return model.model_copy(update={name: str((_folder(context) / path).resolve()) for name, path in given.items()})


def _folder(context: dg.ResolutionContext) -> Path:
    return ComponentDeclLoadContext.from_resolution_context(context).path


def _variables(data: StreamTranslatorData) -> Mapping[str, Any]:
    return {"data": data, "stream": data.stream.id, "table": data.table, "connection": data.connection.name}


def _state_beside_the_component() -> DefsStateConfigArgs:
    # Dagster's default would ask the connector at each start of `dagster dev`.
    return DefsStateConfigArgs(management_type=DefsStateManagementType.LOCAL_FILESYSTEM, refresh_if_dev=False)


# Dagster would walk into our model, and finds types there that its own models do not have: hence Any, a model of a
# plain mapping, and no templates of Dagster's in it, which would take `{{ partition.start }}` for their own.
_InPlace = Annotated[
    Any,
    dg.Resolver(
        _connection,
        model_field_type=Annotated[dict[str, Any], _Written()],
        description="The connection, as a connection file has it. Paths start at the component's folder.",
        inject_before_resolve=False,
    ),
]
_InFile = Annotated[
    Any,
    dg.Resolver(
        _connection_of_file,
        model_field_type=str,
        description="A connection file, by a path from the component's folder.",
        examples=["../../../../connections/shop.yaml"],
    ),
]


@dg.scaffold_with(ConnectorScaffolder)
@dataclass
class ConnectorComponent(dg.StateBackedComponent, dg.Resolvable):
    """Every stream of a connection as an asset that lands in a Spark table.

    The connector is asked what it offers by `dg utils refresh-defs-state`, and never when definitions load; until then
    there are the streams that the connection names, without columns. The project gives the resources: a
    ConnectorResource `connector` and a SparkTableIOManager `io_manager`, or by the names that are given here.
    """

    connection: _InPlace = None
    connection_file: _InFile = None
    translation: (
        Annotated[TranslationFn[StreamTranslatorData], TranslationFnResolver[StreamTranslatorData](_variables)] | None
    ) = None
    partitions: Annotated[
        dg.PartitionsDefinition[Any] | None, dg.Resolver(resolved_partitions, model_field_type=Partitions)
    ] = None
    partition_discovery: Annotated[
        PartitionDiscovery | None, dg.Resolver(_discovery, model_field_type=PartitionDiscovery)
    ] = None
    backfill_policy: Annotated[
        dg.BackfillPolicy | None,
        dg.Resolver(
            resolve_backfill_policy, model_field_type=SingleRunBackfillPolicyModel | MultiRunBackfillPolicyModel
        ),
    ] = None
    checks: Annotated[StreamChecks | None, dg.Resolver(resolved_checks, model_field_type=Checks)] = None
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

    @property
    def connected(self) -> Connection:
        """Its connection, wherever it was written."""
        found = self.connection or self.connection_file
        assert isinstance(found, Connection)
        return found

    @property
    def defs_state_config(self) -> DefsStateConfig:
        default_key = f"{type(self).__name__}[{self.connected.name}]"
        return DefsStateConfig.from_args(self.defs_state, default_key=default_key)

    def get_asset_spec(self, data: StreamTranslatorData) -> dg.AssetSpec:
        """The asset of a stream, after `translation`. To override, as in a StreamTranslator."""
        spec = StreamTranslator().get_asset_spec(data)
        return self.translation(spec, data) if self.translation else spec

    def write_state_to_path(self, state_path: Path) -> None:
        """Asks the connector what it offers, and keeps that. Of partitions it is asked in the newest."""
        settings = Settings.load(home_folder(self.home), self.settings)
        with (
            Engine(settings, deployment=deployment_around) as engine,
            opened_source(engine, self.connected, self._window()) as source,
        ):
            source.check_config()
            catalog = source.catalog(anew=True)
        keep_message(state_path, source.protocol.catalog_message(catalog))

    def _window(self) -> Mapping[str, str] | None:
        """Of the newest partition. None where only Dagster's instance knows the keys, which nobody has here."""
        if self.partitions is None:
            return {}
        newest = sample(self.partitions)
        return newest.words if newest else None

    def build_defs_from_state(
        self,
        context: dg.ComponentLoadContext,  # noqa: ARG002 - as Dagster calls it
        state_path: Path | None,
    ) -> dg.Definitions:
        if state_path is None:
            _LOG.warning(f"Run `dg utils refresh-defs-state`. Until then, of connection {self._until_then}.")
            if not self._names_streams:
                return dg.Definitions()
        assets = build_connector_assets(
            self.connected,
            connector_key=self.connector_key,
            include_metadata=self.include_metadata,
            sample_rows=self.sample_rows,
            translator=_ComponentTranslator(self),
            catalog=state_path,
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
        return dg.Definitions(assets=[assets], sensors=list(self._sensors(assets)))

    @property
    def _names_streams(self) -> bool:
        return any(name != OTHERS for name in self.connected.streams or ())

    @property
    def _until_then(self) -> str:
        name = self.connected.name
        if self._names_streams:
            return f"{name} there are the streams that it names, without columns"
        return f"{name}, which names no stream, there are no assets, and what takes them as inputs does not load"

    def _sensors(self, assets: dg.AssetsDefinition) -> Iterator[dg.SensorDefinition]:
        written = self.partition_discovery
        if written is None:
            return
        is_running = written.running
        yield build_partition_discovery_sensor(
            assets,
            find=self._finder(written),
            remove_gone=written.remove_gone,
            max_runs=written.max_runs,
            minimum_interval_seconds=written.minimum_interval_seconds,
            required_resource_keys=set() if written.files else {self.connector_key},
            default_status=dg.DefaultSensorStatus.RUNNING if is_running else dg.DefaultSensorStatus.STOPPED,
        )

    def _finder(self, written: PartitionDiscovery) -> FindKeys:
        if written.files is not None:
            return files_found(written.files, quiet_seconds=written.quiet_seconds)
        offered = namespaces_offered if written.namespaces_of else streams_offered
        asked = Connection.from_file(written.namespaces_of or written.streams_of or "")
        return offered(asked, connector_key=self.connector_key)


class _ComponentTranslator(StreamTranslator):
    def __init__(self, component: ConnectorComponent) -> None:
        self._component = component

    def get_asset_spec(self, data: StreamTranslatorData) -> dg.AssetSpec:
        return self._component.get_asset_spec(data)
