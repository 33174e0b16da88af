"""Makes the transforms of a stream from the user's choices."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.loads.load import TransformState
from dagster_airbyte_proto.loads.program_identity import connector_program
from dagster_airbyte_proto.model import ComponentSpec, EnrichmentSpec, QuerySpec, StreamId, TransformSpec
from dagster_airbyte_proto.transforms.component import BatchTransformer, ComponentTransform
from dagster_airbyte_proto.transforms.enrichment import Enricher, Enrichment
from dagster_airbyte_proto.transforms.row_query import RowQuery
from dagster_airbyte_proto.transforms.row_rules import RowValidation
from dagster_airbyte_proto.transforms.transform import Transform, TransformChain

Enrichers = Mapping[int, Enricher | BatchTransformer]
"""The connectors of a connection's transforms, by their place there."""

NO_ENRICHERS: Enrichers = {}


def transform_chain(
    specs: Sequence[TransformSpec],
    enrichers: Enrichers = NO_ENRICHERS,
    states: Sequence[TransformState] = (),
    stream: StreamId | None = None,
) -> TransformChain:
    """Returns new transforms for one sync of a stream, which go on from these `states`. Without `enrichers` they only
    tell the shape of its rows."""
    return TransformChain([_transform(spec, enrichers, states, stream) for spec in specs])


def described_transforms(specs: Sequence[TransformSpec]) -> Sequence[Any]:
    """Returns what decides about the rows that they make: not the place of a connector among other transforms, nor how
    rows go to it."""
    described = [msgspec.to_builtins(spec) for spec in specs]
    for spec, each in zip(specs, described, strict=True):
        if isinstance(spec, EnrichmentSpec):
            each["number"] = 0
            del each["calls"]
        elif isinstance(spec, ComponentSpec):
            each["number"] = 0
    return described


def described_connectors(connection: Connection, specs: Sequence[TransformSpec]) -> str:
    """Returns a digest of the connectors of these transforms of a connection; empty without any.

    It covers the program of each, and the config of a component as it is written: a secret behind a reference may
    change. The config of an enrichment is its credentials.
    """
    described = []
    for spec in specs:
        if isinstance(spec, EnrichmentSpec | ComponentSpec):
            own = connection.enrichments[spec.number]
            config = own.written_config() if isinstance(spec, ComponentSpec) else None
            described.append((connector_program(own.connector), config))
    if not described:
        return ""
    text = json.dumps(described, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def transform_text(spec: TransformSpec) -> str:
    """Describes a transform in a line, for people."""
    if isinstance(spec, QuerySpec):
        return spec.sql
    if isinstance(spec, EnrichmentSpec):
        return f"fill {', '.join(name for name, _ in spec.columns)} by an enrichment"
    if isinstance(spec, ComponentSpec):
        return f"fill {', '.join(name for name, _ in spec.columns)} by a component"
    rules = ", ".join(f"{rule.kind} {rule.column}" for rule in spec.rules)
    return f"{rules} (on_error: {spec.on_error})"


def _transform(
    spec: TransformSpec, enrichers: Enrichers, states: Sequence[TransformState], stream: StreamId | None
) -> Transform:
    if isinstance(spec, QuerySpec):
        return RowQuery(spec.sql)
    if isinstance(spec, EnrichmentSpec):
        enricher = enrichers.get(spec.number)
        return Enrichment(spec, None if isinstance(enricher, BatchTransformer) else enricher, states)
    if isinstance(spec, ComponentSpec):
        transformer = enrichers.get(spec.number)
        sender = transformer if isinstance(transformer, BatchTransformer) else None
        return ComponentTransform(spec, sender, states, stream)
    return RowValidation(spec)
