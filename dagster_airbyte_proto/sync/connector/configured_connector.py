"""A connection's connector, ready to be queried and run: its config is filled and checked, its secrets are masked."""

import hashlib
import os
import shlex
import threading
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Generic

import msgspec

from dagster_airbyte_proto.checkpoints.store import Lease, StateStore
from dagster_airbyte_proto.checkpoints.stored_config import ConfigOwner, StoredConfig
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError, ProtocolViolation, ProtoError, StateConflict
from dagster_airbyte_proto.launchers.process import RunningConnector
from dagster_airbyte_proto.masking import Mask, config_secrets, named_secrets
from dagster_airbyte_proto.model import Catalog, StreamId
from dagster_airbyte_proto.protocols.conversation import parse_config_file
from dagster_airbyte_proto.protocols.events import CatalogEvent, CheckEvent, ConfigEvent, MetricEvent, SpecEvent
from dagster_airbyte_proto.protocols.rapidbyte.manifest import declared_variables
from dagster_airbyte_proto.sync.connector.answer_cache import AnswerCache, CachedAnswer
from dagster_airbyte_proto.sync.connector.config_check import check_config
from dagster_airbyte_proto.sync.connector.connector_config import ConnectorConfig
from dagster_airbyte_proto.sync.connector.queries import (
    QUERY_TIMEOUT_SECONDS,
    AnyConversation,
    LaunchableConnector,
    QueryListener,
    query_connector,
)
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.sync.telemetry.sent_metrics import SentMetrics

_MAX_TEXTS = 20
_MASKED_PROCESSES = 16
_PROGRAM_KEYS = ("command", "package", "image", "path", "manifest", "recording")
_STAYS = "It is not kept: the config of before stays in use."


class ConfiguredConnector(Generic[AnyConversation]):
    """The connector of one connection, with its config.

    It answers from the cache where it can, so that a sync starts one process and no more. A connector may rewrite its
    config also during a query: `config` is then the new one, and the caller saves it by `save_config`. Threads that
    read several of its processes hold `rewriting` for both.
    """

    def __init__(
        self,
        connection: Connection,
        config: ConnectorConfig,
        connector: LaunchableConnector[AnyConversation],
        cache: AnswerCache,
        log: RunLog,
    ) -> None:
        self.connection = connection
        self.config = config
        self.connector = connector
        self._saved_config = config.rewritten
        self._stored_before: StoredConfig | None = None
        self.rewriting = threading.RLock()
        self._knows_spec = False
        self.mask = self._lasting_mask = Mask(config.secrets)
        self._process_secrets: tuple[str, ...] = ()
        self.cache = cache
        self.log = log
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.metrics = SentMetrics()
        self.offered: bytes | None = None
        """The catalog of a destination by which this run goes."""
        log.set_mask(self.mask, self)

    @property
    def protocol(self) -> AnyConversation:
        return self.connector.protocol

    @property
    def log_path(self) -> Path:
        return self.log.path

    @property
    def _owner(self) -> ConfigOwner:
        return ConfigOwner.DESTINATION if self.connection.is_relay_destination else ConfigOwner.CONNECTOR

    @property
    def _role(self) -> str:
        """The name of the connector in errors: a relay has two."""
        if self.connection.is_relay_destination:
            return "destination"
        return "source" if self.connection.to is not None else "connector"

    @property
    def _program(self) -> str:
        """The command, or the package, image or file, as the connection names it."""
        launch = self.connection.connector.launch
        named = next((value for key in _PROGRAM_KEYS if (value := getattr(launch, key, None))), launch.kind)
        return f"`{named if isinstance(named, str | Path) else shlex.join(named)}`"

    @cached_property
    def identity(self) -> str:
        """The exact connector and version that would run. Cached: some launchers install a package to find out."""
        return self.connector.launcher.identity()

    @property
    def cache_key(self) -> tuple[str, str, str]:
        """The key of the connector's answers in the cache. The destination of a relay has the name of its source."""
        name = self.connection.name
        return (f"{name}.to" if self.connection.is_relay_destination else name, self.identity, self._options_digest)

    @property
    def _options_digest(self) -> str:
        """A digest of the config, and of the variables whose values the connection writes: some connectors have their
        options there. Values of our own environment do not count: a token there changes from run to run."""
        written = sorted(each for each in self.connection.connector.variables if "=" in each)
        if not written:
            return self.config.digest
        text = "\0".join([self.config.digest, *written])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def use_stored_config(self, store: StateStore) -> None:
        """Uses the config that the connector last rewrote, unless the user has changed their own since."""
        self._stored_before = store.stored_config(self.connection.name, self._owner)
        config = self.config.with_stored(self._stored_before)
        self._saved_config = config.rewritten
        self._use_config(config)

    def accept_rewritten_config(self, event: ConfigEvent) -> None:
        """Uses a config that the connector sent back from now on.

        Raises ConfigError if it is empty or the connector's own spec refuses it: no run could start with it.
        """
        config = self.config.with_rewritten(event.config)
        if config is self.config:
            return
        self.mask_more(config.secrets)
        spec = self.spec()
        self.mask_more(config_secrets(config.current, spec.config_schema))
        where = "taking the config that the connector wrote back"
        if not config.current and self.config.current:
            raise ConfigError(where, "it is empty", remedy=_STAYS)
        try:
            check_config(config.current, spec.config_schema, where=where)
        except ConfigError as error:
            raise ConfigError(error.doing, error.found, remedy=_STAYS) from None
        self._use_config(config)

    def try_rewritten_config(self, event: ConfigEvent) -> None:
        """The same, with a warning in the log in the place of the error."""
        try:
            self.accept_rewritten_config(event)
        except ConfigError as error:
            self.log.write("WARN", str(error))

    @property
    def has_unsaved_config(self) -> bool:
        """True if the connector rewrote its config and nobody has saved that yet."""
        return self.config.rewritten != self._saved_config

    def is_config_replaced(self, store: StateStore) -> bool:
        """True if a run has stored another config since this connector took the stored one."""
        return store.stored_config(self.connection.name, self._owner) != self._stored_before

    def save_config(self, store: StateStore, lease: Lease) -> None:
        """Stores the config if the connector has rewritten it."""
        if self.config.rewritten is not None and self.has_unsaved_config:
            store.save_config(lease, self.config.rewritten, based_on=self.config.digest, owner=self._owner)
            self._saved_config = self.config.rewritten

    def keep_config_of(self, running: RunningConnector, store: StateStore, lease: Lease) -> None:
        """Stores the config if a process has rewritten it, by a message or in its file: the old one may be invalid.

        Where that fails there is a warning, for what the process has done counts all the same. Raises StateConflict if
        another run has taken over.
        """
        content = running.rewritten_file()
        event = None if content is None else parse_config_file(content)
        if event is not None:
            self.try_rewritten_config(event)
        try:
            self.save_config(store, lease)
        except StateConflict:
            raise
        except ProtoError as error:
            self.warn(f"the connector's new config could not be stored; its next run may be refused: {error}")

    def _use_config(self, config: ConnectorConfig) -> None:
        if config is not self.config:
            self.config = config
            self.mask_more(config.secrets)
            self._mask_secrets(self.spec())

    def spec(self, *, fresh: bool = False, timeout_seconds: float = QUERY_TIMEOUT_SECONDS) -> SpecEvent:
        """The connector's spec. From now on the protocol adapts to it: taps differ in their flags."""
        cached = None if fresh else self.usable_message(self.cache.spec(self.identity))
        if cached is not None:
            spec = self.protocol.spec_from_message(msgspec.json.decode(cached))
        else:
            spec = query_connector(
                self.connector, self.protocol.spec(), SpecEvent, self._spec_listener, timeout_seconds=timeout_seconds
            )
            self.cache.keep_spec(self.identity, msgspec.json.encode(spec.message))
        self.connector = self.connector._replace(protocol=self.protocol.adapted_to(spec))
        self._knows_spec = True
        # A component gets these by its manifest's word alone: no connection needs to name them.
        given = {name: os.environ[name] for name in declared_variables(spec.message) if name in os.environ}
        if given:
            self.mask_more(named_secrets(given))
        return spec

    def note(self, text: str) -> None:
        """Writes a text to the log, for the report of the run too."""
        self._collect(self.notes, "NOTE", text)

    def warn(self, text: str) -> None:
        """Writes a warning to the log, for the report of the run too."""
        self._collect(self.warnings, "WARN", text)

    def take_metric(self, event: MetricEvent, stream: StreamId | None) -> None:
        """Writes a metric to the log, and keeps it for the report of the run."""
        self.log.write("DEBUG", repr(event))
        self.metrics.add(event._replace(name=self.mask.text(event.name)), stream)

    def _collect(self, texts: list[str], level: str, text: str) -> None:
        self.log.write(level, text)
        masked = self.mask.text(text)
        # Each process of a run may say the same. The log has all texts.
        if masked not in texts and len(texts) < _MAX_TEXTS:
            texts.append(masked)

    def check_config(self, *, says_unchecked: bool = False) -> None:
        """Checks the config against the connector's own spec. Raises ConfigError with every fault and its path.

        That a connector does not describe its config is news for a user who asks for a check, and not at each sync.
        """
        spec = self.spec()
        self._mask_secrets(spec)
        where = self._config_origin()
        try:
            warnings = check_config(self.config.current, spec.config_schema, where=where)
        except ConfigError as error:
            if self.config.rewritten is not None:
                remedy = (
                    f"airbyte-proto config reset {self.connection.name} drops it; the connection's own is used then."
                )
                raise ConfigError(error.doing, error.found, remedy=remedy) from None
            if not self.config.has_open_templates:
                raise
            remedy = "Its templates are not filled in, because no partition was named. Name one with --partition."
            raise ConfigError(error.doing, error.found, remedy=remedy) from None
        for warning in warnings:
            self.log.write("WARN", warning)
        if not spec.config_schema:
            level = "NOTE" if says_unchecked else "INFO"
            self.log.write(level, f"{where} was not checked: the connector does not describe its config")
        if self.config.has_open_templates:
            self.log.write("NOTE", f"{where}: the connector gets the templates as they are written")

    def _config_origin(self) -> str:
        if self.config.rewritten is not None:
            return f"config that the connector of {self.connection.name} wrote back"
        origin = self.connection.config_file or self.connection.origin
        config = "config" if self._role == "connector" else f"config of the {self._role}"
        return f"{config} in {origin}" if origin else f"{config} of connection {self.connection.name}"

    def check(self, *, timeout_seconds: float = QUERY_TIMEOUT_SECONDS) -> CheckEvent:
        """Checks the config against the spec, then lets the connector try it. Returns the connector's verdict."""
        self.check_config(says_unchecked=True)
        invocations = [self.protocol.check(self.config.current)]
        return query_connector(self.connector, invocations, CheckEvent, self.listener, timeout_seconds=timeout_seconds)

    def catalog(self, *, fresh: bool = False, timeout_seconds: float = QUERY_TIMEOUT_SECONDS) -> Catalog:
        """The connector's catalog. Raises ConnectorError if there is no answer within `timeout_seconds`."""
        cache_key = self.cache_key
        named = self.connection.connector.catalog_file
        if named is not None:
            catalog = self._catalog_in_file(named)
            self.cache.keep_catalog(*cache_key, self.protocol.catalog_message(catalog))
            return catalog
        cached = None if fresh else self.usable_message(self.cache.catalog(*cache_key))
        if cached is not None:
            return self.protocol.catalog(cached)
        if not self._knows_spec:
            self.spec()
        invocations = [self.protocol.discover(self.config.current)]
        found = query_connector(
            self.connector, invocations, CatalogEvent, self.listener, timeout_seconds=timeout_seconds
        )
        self.cache.keep_catalog(*cache_key, self.protocol.catalog_message(found.catalog))
        return found.catalog

    def _catalog_in_file(self, path: Path) -> Catalog:
        doing = f"reading the catalog file {path}"
        try:
            return self.protocol.catalog(self.connection.read_file(path))
        except OSError as error:
            raise ConfigError(doing, error.strerror or str(error)) from error
        except ProtocolViolation as error:
            raise ConfigError(doing, error.found, remedy="Write it as `--discover` of a tap prints it.") from error

    @property
    def listener(self) -> QueryListener:
        return QueryListener(self.log, self.mask, self.try_rewritten_config, self._role, self._program)

    @property
    def _spec_listener(self) -> QueryListener:
        # The connector got no config, and without the spec none could be checked.
        found = "the connector sent a config with its spec: it is not kept"
        return QueryListener(self.log, self.mask, lambda _: self.log.write("WARN", found), self._role, self._program)

    def usable_message(self, answer: CachedAnswer) -> bytes | None:
        if answer.warning:
            self.log.write("WARN", answer.warning)
        return answer.message

    def _mask_secrets(self, spec: SpecEvent) -> None:
        self.mask_more(config_secrets(self.config.current, spec.config_schema))

    def mask_more(self, secrets: Iterable[str]) -> None:
        self._lasting_mask = self._lasting_mask.extended(secrets)
        self._use_mask()

    def mask_of_process(self, secret: str) -> None:
        """Masks a secret that one process has, and that ends with it.

        Only those of the last processes stay masked: there may be a process for each row, and a mask of thousands takes
        longer to make than a process to start.
        """
        self._process_secrets = (*self._process_secrets[1 - _MASKED_PROCESSES :], secret)
        self._use_mask()

    def _use_mask(self) -> None:
        self.mask = self._lasting_mask.extended(self._process_secrets)
        self.log.set_mask(self.mask, self)
