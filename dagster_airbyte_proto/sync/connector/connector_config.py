"""The config of a connector, as one value: written by the user, filled for a run, rewritten by the connector.

1. A user writes references (`${env:NAME}`, `${file:path}`) and templates (`{{ partition.start }}`). A run fills them.
2. A connector may rewrite its config, to rotate a token. The rewritten config is stored without secrets: where a value
   is still that of a reference, the reference is stored. What the launcher put into it is not stored either.
3. The next run takes the stored config, fills the references and puts its own partition's values in the place of the
   templates. It takes it only while the user's config is the same, by its digest.
4. The digest is that of the config without template values: partitions share the stored config, the catalog and other
   answers.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from dagster_airbyte_proto.checkpoints.stored_config import StoredConfig
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.connection.references import referenced_values, restore_references, restore_values
from dagster_airbyte_proto.connection.templating import fill_templates, has_template, refresh_templates
from dagster_airbyte_proto.launchers.packages.manifest_launcher import INJECTED_KEY_PREFIX
from dagster_airbyte_proto.launchers.permissions import PROXY_VARIABLES, parse_variables
from dagster_airbyte_proto.masking import named_secrets
from dagster_airbyte_proto.protocols.conversation import encode_config
from dagster_airbyte_proto.protocols.events import ConfigEvent

_TAKEN_AT_ONCE = 20


@dataclass(frozen=True)
class ConnectorConfig:
    """A connector's config in one run.

    `rewritten` is what the connector made of it, in the form that is stored; None if it never did. It is shown by no
    repr: configs have secrets.
    """

    written: Mapping[str, Any] = field(repr=False)
    filled: Mapping[str, Any] = field(repr=False)
    digest: str
    filled_secrets: frozenset[str] = field(default=frozenset(), repr=False)
    has_open_templates: bool = False
    rewritten: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def current(self) -> Mapping[str, Any]:
        """The config that the connector gets."""
        if self.rewritten is None:
            return self.filled
        restored = restore_values(self.rewritten, self.written, self.filled)
        current: Mapping[str, Any] = refresh_templates(restored, self.written, self.filled)
        return current

    @property
    def secrets(self) -> frozenset[str]:
        """Values to mask, as far as they are known without the connector's spec.

        Many specs do not mark secrets. So a rewritten config adds new values whose names sound secret, and the values
        in the place of references, which were secret before.
        """
        if self.rewritten is None:
            return self.filled_secrets
        current = self.current
        new = named_secrets(current) - named_secrets(self.filled)
        return self.filled_secrets | new | referenced_values(current, self.written)

    def with_stored(self, stored: StoredConfig | None) -> Self:
        """The config that the connector last rewrote, unless the user has changed their own since."""
        if stored is None or stored.based_on != self.digest:
            return self
        return replace(self, rewritten=stored.config)

    def with_rewritten(self, config: Mapping[str, Any]) -> Self:
        """The config after the connector sent one back. The same value if the connector changed nothing."""
        if config == json.loads(encode_config(self.current)):
            return self
        own = {
            key: value
            for key, value in config.items()
            if not key.startswith(INJECTED_KEY_PREFIX) or key in self.written
        }
        return replace(self, rewritten=restore_references(own, self.written, self.filled))


def connector_config(
    connection: Connection, environment: Mapping[str, str], window: Mapping[str, str] | None = None
) -> ConnectorConfig:
    """The config of a connection, filled. Raises ConfigError with every reference and template that cannot be filled.

    `window` has the values of the templates; an empty one refuses any template. With None the templates stay as they
    are written, for queries that are not about a partition. Variables that the connector gets are secrets if their
    names sound so, and the passwords in their URLs, those of proxies among them.
    """
    shared = connection.filled_config(environment)
    of_partition = connection if window is None else fill_templates(connection, window)
    # Without templates it is the same connection, and each secret is read once.
    filled = shared if of_partition is connection else of_partition.filled_config(environment)
    written = connection.written_config()
    proxies = {name: value for name, value in environment.items() if name.lower() in PROXY_VARIABLES}
    given = {**proxies, **parse_variables(connection.connector.variables, environment)}
    return ConnectorConfig(
        written,
        filled.config,
        shared.digest,
        filled_secrets=filled.secrets | named_secrets(given),
        has_open_templates=window is None and has_template(written),
    )


class RewrittenConfigs:
    """Passes the first 20 configs that a connector sends back to `take` at once. Of later ones, `take_newest` passes
    the newest.

    To take one costs a check, a new mask and a write to the store: some milliseconds, and the mask's part grows with
    each secret. A connector that rotates its token sends a few a day. One that sends thousands must not keep the thread
    that reads from noticing a hang or a cancellation.
    """

    def __init__(self, take: Callable[[ConfigEvent], None]) -> None:
        self._take = take
        self._left = _TAKEN_AT_ONCE
        self._newest: ConfigEvent | None = None

    def receive(self, event: ConfigEvent) -> None:
        self._newest = event
        if self._left:
            self._left -= 1
            self.take_newest()

    def take_newest(self) -> None:
        """Call it now and then, and at the end."""
        event, self._newest = self._newest, None
        if event is not None:
            self._take(event)
