"""Fields of a component's YAML for which Dagster has no model, or one that lacks options."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, get_type_hints

import dagster as dg
from dagster.components.resolved.core_models import (
    DailyPartitionsDefinitionModel,
    HourlyPartitionsDefinitionModel,
    StaticPartitionsDefinitionModel,
    TimeWindowPartitionsDefinitionModel,
    WeeklyPartitionsDefinitionModel,
    resolve_partitions_def,
)
from pydantic import Field, create_model

from dagster_airbyte_proto.dagster_defs.definitions.checks import StreamChecks

OneDimension = (
    HourlyPartitionsDefinitionModel
    | DailyPartitionsDefinitionModel
    | WeeklyPartitionsDefinitionModel
    | TimeWindowPartitionsDefinitionModel
    | StaticPartitionsDefinitionModel
)


class DynamicPartitions(dg.Resolvable, dg.Model):
    """Partitions whose keys are added while the project runs, for example by `partition_discovery`."""

    type: Literal["dynamic"]
    name: str


class PartitionDiscovery(dg.Resolvable, dg.Model):
    """A sensor that adds a dynamic partition for each file, namespace or stream that appears, and starts a run of it.

    It needs exactly one of `files` (a pattern), `namespaces_of` and `streams_of` (connection files). Paths are relative
    to the component's folder.
    """

    files: str | None = None
    quiet_seconds: float = 0.0
    namespaces_of: str | None = None
    streams_of: str | None = None
    remove_gone: bool = False
    max_runs: int = 100
    minimum_interval_seconds: int = 60
    running: bool = False


class TableSensor(dg.Resolvable, dg.Model):
    """A sensor that pushes the streams of a table as soon as it has a new snapshot.

    It watches the tables that the streams read; `tables` names other ones by stream, above all for a stream that reads
    a query.
    """

    tables: Mapping[str, list[str]] | None = None
    name: str | None = None
    minimum_interval_seconds: int = 60
    running: bool = False


class MultiPartitions(dg.Resolvable, dg.Model):
    """Partitions of two dimensions."""

    type: Literal["multi"]
    dimensions: Mapping[str, OneDimension | DynamicPartitions]


Partitions = OneDimension | DynamicPartitions | MultiPartitions


class Retries(dg.Resolvable, dg.Model):
    """The retry policy of a step: how many retries, and how many seconds between them."""

    max_retries: int = 1
    delay: float | None = None
    backoff: Literal["linear", "exponential"] | None = None
    jitter: Literal["full", "plus_minus"] | None = None


# The field names end in "_" because one of them, `schema`, would hide a method of every pydantic model.
_CHECKS = {
    f"{each.name}_": (get_type_hints(StreamChecks)[each.name], Field(default=each.default, alias=each.name))
    for each in fields(StreamChecks)
}
Checks: type[dg.Model] = create_model("Checks", __base__=dg.Model, __doc__=StreamChecks.__doc__, **_CHECKS)  # type: ignore[call-overload]  # its fields are those of another class


def resolved_partitions(context: dg.ResolutionContext, model: Any) -> dg.PartitionsDefinition[Any] | None:
    if isinstance(model, DynamicPartitions):
        return dg.DynamicPartitionsDefinition(name=model.name)
    if isinstance(model, MultiPartitions):
        dimensions = {name: resolved_partitions(context, inner) for name, inner in model.dimensions.items()}
        return dg.MultiPartitionsDefinition({name: inner for name, inner in dimensions.items() if inner is not None})
    return resolve_partitions_def(context, model)


def resolved_checks(context: dg.ResolutionContext, model: Any) -> StreamChecks | None:  # noqa: ARG001 - as Dagster calls it
    return None if model is None else StreamChecks(**model.model_dump(by_alias=True))


def resolved_retries(context: dg.ResolutionContext, model: Any) -> dg.RetryPolicy | None:  # noqa: ARG001 - as Dagster calls it
    if model is None:
        return None
    return dg.RetryPolicy(
        max_retries=model.max_retries,
        delay=model.delay,
        backoff=dg.Backoff[model.backoff.upper()] if model.backoff else None,
        jitter=dg.Jitter[model.jitter.upper()] if model.jitter else None,
    )
