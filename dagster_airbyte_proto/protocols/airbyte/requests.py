"""The requests that sources and destinations of Airbyte have in common, and the answers that both give alike."""

from collections.abc import Mapping
from typing import Any

from dagster_airbyte_proto.model import Catalog
from dagster_airbyte_proto.protocols.airbyte import catalog as airbyte_catalog
from dagster_airbyte_proto.protocols.catalog_json import catalog_message
from dagster_airbyte_proto.protocols.conversation import FileArgument, Invocation, Verb, encode_config
from dagster_airbyte_proto.protocols.events import SpecEvent

CONFIG = FileArgument("config.json")
CATALOG = FileArgument("catalog.json")


class AirbyteRequests:
    """The part of a Conversation that does not depend on whether a connector reads or writes."""

    name: str = "airbyte"
    keeps_scopes: bool = False

    def spec(self) -> tuple[Invocation, ...]:
        return (Invocation(("spec",), verb=Verb.SPEC),)

    def check(self, config: Mapping[str, Any]) -> Invocation:
        return Invocation(("check", "--config", CONFIG), {CONFIG.name: encode_config(config)}, verb=Verb.CHECK)

    def discover(self, config: Mapping[str, Any]) -> Invocation:
        return Invocation(("discover", "--config", CONFIG), {CONFIG.name: encode_config(config)}, verb=Verb.DISCOVER)

    def spec_from_message(self, message: Mapping[str, Any]) -> SpecEvent:
        return SpecEvent(message.get("connectionSpecification", {}), message)

    def catalog(self, message: bytes) -> Catalog:
        return airbyte_catalog.parse_catalog(message)

    def catalog_message(self, catalog: Catalog) -> bytes:
        return catalog_message(stream.raw for stream in (*catalog.streams, *catalog.duplicates))
