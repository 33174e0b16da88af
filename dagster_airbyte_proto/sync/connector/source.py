"""A connection's connector, ready to be asked and run: its config filled and checked, its secrets masked."""

import json
import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from dagster_airbyte_proto.checkpoints.store import StateStore
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.connection.filling import referred, refilled, unfilled
from dagster_airbyte_proto.connection.templating import is_template, renewed, templated
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.packages.manifest import INJECTED
from dagster_airbyte_proto.launchers.recordings.recording import RecordingLauncher
from dagster_airbyte_proto.masking import Mask, named_secrets, secret_values
from dagster_airbyte_proto.model import Catalog, StreamId
from dagster_airbyte_proto.protocols.conversation import SourceProtocol, Verb, config_file
from dagster_airbyte_proto.protocols.events import CatalogEvent, CheckEvent, ConfigEvent, SchemaEvent, SpecEvent
from dagster_airbyte_proto.sync.connector.answer_cache import Offer, Offers
from dagster_airbyte_proto.sync.connector.config_check import check_config
from dagster_airbyte_proto.sync.connector.queries import PATIENCE_SECONDS, Connector, Listener, ask
from dagster_airbyte_proto.sync.run_log import RunLog

# Made here, in one thread: two that use a type for the first time at once can crash msgspec.
_TOLD = msgspec.json.Decoder(list[SchemaEvent])


class Source:
    """Answers from what was kept where it can, so that a sync starts one process and no more.

    A connector may rewrite its config even when it is merely asked: `unkept_config` is then the caller's to keep.
    `window` fills the templates of the config, which an empty one has nothing for: they are refused then. With None
    they stand as they are written, for questions that are not about a partition.
    """

    def __init__(
        self,
        connection: Connection,
        connector: Connector,
        offers: Offers,
        log: RunLog,
        window: Mapping[str, str] | None = None,
    ) -> None:
        written = connection.filled_config(os.environ)
        filled = written if window is None else templated(connection, window).filled_config(os.environ)
        self.connection = connection
        self.connector = connector
        self.config: Mapping[str, Any] = filled.config
        # Not of what fills the templates: the partitions share what the connector makes of its config and offers.
        self.config_digest = written.digest
        self._written = connection.written_config()
        self._filled = filled.config
        self._has_templates = window is None and is_template(self._written)
        self._is_known = False
        self.mask = Mask(filled.secrets)
        self.unkept_config: Mapping[str, Any] | None = None
        self._offers = offers
        self._log = log
        log.mask_also(self.mask)

    @property
    def protocol(self) -> SourceProtocol:
        return self.connector.protocol

    @cached_property
    def identity(self) -> str:
        """Which very connector would run. Once told it stays: some launchers install a package to tell it."""
        return self.connector.launcher.identity()

    def hash_key(self) -> str:
        """What private columns are hashed with; masked from now on. Raises ConfigError where there is none."""
        key = self.connection.filled_hash_key(os.environ)
        self._mask_also({key})
        return key

    def take_kept_config(self, store: StateStore) -> None:
        """What the connector made of its config goes before the user's, until the user changes theirs."""
        kept = store.config(self.connection.name)
        if kept is not None and kept.based_on == self.config_digest:
            self.take_config(kept.config)

    def take_config(self, config: Mapping[str, Any]) -> None:
        """The config as the connector last rewrote it stands from now on; its secrets are masked too."""
        config = refilled(config, self._written, self._filled)
        self.config = renewed(config, self._written, self._filled)
        # Many connectors have no spec that tells what is secret: what was, and what is new and called so.
        new = named_secrets(self.config) - named_secrets(self._filled)
        self._mask_also(new | referred(self.config, self._written))
        self._mask_secrets(self.spec())

    def spec(self, *, anew: bool = False) -> SpecEvent:
        """What config the connector takes. From now on it is asked as one of this spec wants to be."""
        kept = None if anew else self._kept(self._offers.spec(self.identity))
        if kept is not None:
            spec = self.protocol.kept_spec(msgspec.json.decode(kept))
        else:
            spec = ask(self.connector, (Verb.SPEC, self.protocol.spec()), SpecEvent, self._listener)
            self._offers.keep_spec(self.identity, msgspec.json.encode(spec.message))
        self.connector = self.connector._replace(protocol=self.protocol.knowing(spec))
        self._is_known = True
        return spec

    def check_config(self) -> None:
        """Holds the config against the connector's own spec. Raises ConfigError with every fault and its path."""
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
            self._log.write("NOTE", f"{where} was not checked: the connector does not tell what it takes")
        if self._has_templates:
            self._log.write("NOTE", f"{where}: the connector gets the templates as they are written")

    def check(self) -> CheckEvent:
        """The connector's own verdict, by trying. Its config is held against the spec first."""
        self.check_config()
        return ask(self.connector, (Verb.CHECK, [self.protocol.check(self.config)]), CheckEvent, self._listener)

    def catalog(self, *, anew: bool = False, patience_seconds: float = PATIENCE_SECONDS) -> Catalog:
        """What the connector offers. Raises ConnectorError when there is no answer within `patience_seconds`."""
        belongs_to = (self.connection.name, self.identity, self.config_digest)
        kept = None if anew else self._kept(self._offers.catalog(*belongs_to))
        if kept is not None:
            return self.protocol.catalog(kept)
        if not self._is_known:
            self.spec()
        question = (Verb.DISCOVER, [self.protocol.discover(self.config)])
        found = ask(self.connector, question, CatalogEvent, self._listener, patience_seconds=patience_seconds)
        self._offers.keep_catalog(*belongs_to, self.protocol.catalog_message(found.catalog))
        return found.catalog

    def told(self) -> Mapping[StreamId, SchemaEvent]:
        """What the connector told of its streams while it read, the last time that it told something of each."""
        kept = self._kept(self._offers.told(self.connection.name, self.identity, self.config_digest))
        if kept is None:
            return {}
        try:
            return {event.stream: event for event in _TOLD.decode(kept)}
        except msgspec.ValidationError as error:  # Another version's.
            self._log.write("WARN", f"what is kept of what the connector told of its streams cannot be used: {error}")
            return {}

    def keep_told(self, told: Iterable[SchemaEvent]) -> None:
        message = msgspec.json.encode([*told])
        self._offers.keep_told(self.connection.name, self.identity, self.config_digest, message)

    @property
    def _listener(self) -> Listener:
        return Listener(self._log, self.mask, self._hear_config)

    def rewrote_config(self, rewritten: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What is to be kept of a config that the connector sent back, which stands from now on; None where that is the
        one that it was given. It is without what its launcher had put into it, and without what the environment has
        and the connector left alone."""
        if rewritten == json.loads(config_file(self.config)):
            return None
        own = {key: value for key, value in rewritten.items() if not key.startswith(INJECTED) or key in self._written}
        kept: Mapping[str, Any] = unfilled(own, self._written, self._filled)
        self.take_config(kept)
        return kept

    def _hear_config(self, event: ConfigEvent) -> None:
        kept = self.rewrote_config(event.config)
        self.unkept_config = self.unkept_config if kept is None else kept

    def _kept(self, offer: Offer) -> bytes | None:
        if offer.warning:
            self._log.write("WARN", offer.warning)
        return offer.message

    def _mask_secrets(self, spec: SpecEvent) -> None:
        self._mask_also(secret_values(self.config, spec.config_schema))

    def _mask_also(self, secrets: Iterable[str]) -> None:
        self.mask = self.mask.also(secrets)
        self._log.mask_also(self.mask)


def recorded(source: Source, folder: Path) -> Connector:
    """The same connector, with every run of it kept in `folder`."""
    return Connector(RecordingLauncher(source.connector.launcher, folder, source.mask.data), source.protocol)
