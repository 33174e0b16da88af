"""A connection's connector, ready to be queried and run: its config is filled and checked, its secrets are masked."""

import json
import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from dagster_airbyte_proto.checkpoints.store import StateStore
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.connection.environment import referenced_values, restore_references, restore_values
from dagster_airbyte_proto.connection.templating import fill_templates, has_template, refresh_templates
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.packages.manifest_launcher import INJECTED_KEY_PREFIX
from dagster_airbyte_proto.launchers.recordings.recording import RecordingLauncher
from dagster_airbyte_proto.masking import Mask, named_secrets, secret_values
from dagster_airbyte_proto.model import Catalog, StreamId
from dagster_airbyte_proto.protocols.conversation import SourceProtocol, Verb, encode_config
from dagster_airbyte_proto.protocols.events import CatalogEvent, CheckEvent, ConfigEvent, SchemaEvent, SpecEvent
from dagster_airbyte_proto.sync.connector.answer_cache import AnswerCache, CachedAnswer
from dagster_airbyte_proto.sync.connector.config_check import check_config
from dagster_airbyte_proto.sync.connector.queries import (
    QUERY_TIMEOUT_SECONDS,
    LaunchableConnector,
    QueryListener,
    query_connector,
)
from dagster_airbyte_proto.sync.run_log import RunLog

# Made here, in one thread: two that use a type for the first time at once can crash msgspec.
_SCHEMA_EVENTS = msgspec.json.Decoder(list[SchemaEvent])


class Source:
    """The connector of one connection, with its config.

    It answers from the cache where it can, so that a sync starts one process and no more. A connector may rewrite its
    config also during a query: the caller must then save `config_to_save`. `window` fills the templates of the config;
    an empty one refuses any template. With None the templates stay as they are written, for queries that are not about
    a partition.
    """

    def __init__(
        self,
        connection: Connection,
        connector: LaunchableConnector,
        cache: AnswerCache,
        log: RunLog,
        window: Mapping[str, str] | None = None,
    ) -> None:
        written = connection.filled_config(os.environ)
        filled = written if window is None else fill_templates(connection, window).filled_config(os.environ)
        self.connection = connection
        self.connector = connector
        self.config: Mapping[str, Any] = filled.config
        # A digest without the template values: partitions share the rewritten config, the catalog and other answers.
        self.config_digest = written.digest
        self._written = connection.written_config()
        self._filled = filled.config
        self._has_templates = window is None and has_template(self._written)
        self._knows_spec = False
        self.mask = Mask(filled.secrets)
        self.config_to_save: Mapping[str, Any] | None = None
        self._cache = cache
        self._log = log
        log.set_mask(self.mask)

    @property
    def protocol(self) -> SourceProtocol:
        return self.connector.protocol

    @cached_property
    def identity(self) -> str:
        """The exact connector and version that would run. Cached: some launchers install a package to find out."""
        return self.connector.launcher.identity()

    def hash_key(self) -> str:
        """The key by which private columns are hashed, masked from now on. Raises ConfigError if there is none."""
        key = self.connection.filled_hash_key(os.environ)
        self._mask_more({key})
        return key

    def use_stored_config(self, store: StateStore) -> None:
        """Uses the config that the connector last rewrote, unless the user has changed their own since."""
        stored = store.stored_config(self.connection.name)
        if stored is not None and stored.based_on == self.config_digest:
            self.use_config(stored.config)

    def use_config(self, config: Mapping[str, Any]) -> None:
        """Uses a config that the connector rewrote from now on, and masks its secrets too."""
        config = restore_values(config, self._written, self._filled)
        self.config = refresh_templates(config, self._written, self._filled)
        # Many specs do not mark secrets. So mask new values whose names sound secret, and values in the place of
        # references, which were secret before.
        new = named_secrets(self.config) - named_secrets(self._filled)
        self._mask_more(new | referenced_values(self.config, self._written))
        self._mask_secrets(self.spec())

    def spec(self, *, fresh: bool = False) -> SpecEvent:
        """The connector's spec. From now on the protocol adapts to it: taps differ in their flags."""
        cached = None if fresh else self._usable_message(self._cache.spec(self.identity))
        if cached is not None:
            spec = self.protocol.spec_from_message(msgspec.json.decode(cached))
        else:
            spec = query_connector(self.connector, (Verb.SPEC, self.protocol.spec()), SpecEvent, self._listener)
            self._cache.keep_spec(self.identity, msgspec.json.encode(spec.message))
        self.connector = self.connector._replace(protocol=self.protocol.adapted_to(spec))
        self._knows_spec = True
        return spec

    def check_config(self) -> None:
        """Checks the config against the connector's own spec. Raises ConfigError with every fault and its path."""
        spec = self.spec()
        self._mask_secrets(spec)
        origin = self.connection.config_file or self.connection.origin
        where = f"config in {origin}" if origin else f"config of connection {self.connection.name}"
        try:
            warnings = check_config(self.config, spec.config_schema, where=where)
        except ConfigError as error:
            if not self._has_templates:
                raise
            remedy = "Its templates stand as they are written, for no partition was named. Name one with --partition."
            raise ConfigError(error.doing, error.found, remedy=remedy) from None
        for warning in warnings:
            self._log.write("WARN", warning)
        if not spec.config_schema:
            self._log.write("NOTE", f"{where} was not checked: the connector does not describe its config")
        if self._has_templates:
            self._log.write("NOTE", f"{where}: the connector gets the templates as they are written")

    def check(self) -> CheckEvent:
        """Checks the config against the spec, then lets the connector try it. Returns the connector's verdict."""
        self.check_config()
        return query_connector(
            self.connector, (Verb.CHECK, [self.protocol.check(self.config)]), CheckEvent, self._listener
        )

    def catalog(self, *, fresh: bool = False, timeout_seconds: float = QUERY_TIMEOUT_SECONDS) -> Catalog:
        """The connector's catalog. Raises ConnectorError if there is no answer within `timeout_seconds`."""
        cache_key = (self.connection.name, self.identity, self.config_digest)
        cached = None if fresh else self._usable_message(self._cache.catalog(*cache_key))
        if cached is not None:
            return self.protocol.catalog(cached)
        if not self._knows_spec:
            self.spec()
        query = (Verb.DISCOVER, [self.protocol.discover(self.config)])
        found = query_connector(self.connector, query, CatalogEvent, self._listener, timeout_seconds=timeout_seconds)
        self._cache.keep_catalog(*cache_key, self.protocol.catalog_message(found.catalog))
        return found.catalog

    def stream_schemas(self) -> Mapping[StreamId, SchemaEvent]:
        """The newest schema message of each stream that the connector sent while it read, in earlier syncs."""
        cached = self._usable_message(
            self._cache.stream_schemas(self.connection.name, self.identity, self.config_digest)
        )
        if cached is None:
            return {}
        try:
            return {event.stream: event for event in _SCHEMA_EVENTS.decode(cached)}
        except msgspec.ValidationError as error:  # Another version of this program may have written it.
            self._log.write("WARN", f"the schemas that the connector sent in earlier syncs cannot be used: {error}")
            return {}

    def keep_stream_schemas(self, schemas: Iterable[SchemaEvent]) -> None:
        """Keeps the schemas in the cache, in the place of those that are there."""
        message = msgspec.json.encode([*schemas])
        self._cache.keep_stream_schemas(self.connection.name, self.identity, self.config_digest, message)

    @property
    def _listener(self) -> QueryListener:
        return QueryListener(self._log, self.mask, self._accept_config_event)

    def accept_rewritten_config(self, rewritten: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Uses a config that the connector sent back from now on. Returns what to save of it, or None if it is the
        config that the connector was given.

        The config to save lacks what the launcher put into it. Values that come from the environment, and that the
        connector left alone, are saved as references to it.
        """
        if rewritten == json.loads(encode_config(self.config)):
            return None
        own = {
            key: value
            for key, value in rewritten.items()
            if not key.startswith(INJECTED_KEY_PREFIX) or key in self._written
        }
        to_save: Mapping[str, Any] = restore_references(own, self._written, self._filled)
        self.use_config(to_save)
        return to_save

    def _accept_config_event(self, event: ConfigEvent) -> None:
        rewritten = self.accept_rewritten_config(event.config)
        self.config_to_save = self.config_to_save if rewritten is None else rewritten

    def _usable_message(self, answer: CachedAnswer) -> bytes | None:
        if answer.warning:
            self._log.write("WARN", answer.warning)
        return answer.message

    def _mask_secrets(self, spec: SpecEvent) -> None:
        self._mask_more(secret_values(self.config, spec.config_schema))

    def _mask_more(self, secrets: Iterable[str]) -> None:
        self.mask = self.mask.extended(secrets)
        self._log.set_mask(self.mask)


def recording_connector(source: Source, folder: Path) -> LaunchableConnector:
    """The source's connector, with every run of it recorded in `folder`."""
    return LaunchableConnector(RecordingLauncher(source.connector.launcher, folder, source.mask.data), source.protocol)
