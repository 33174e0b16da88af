"""The pages have each key that users write, and their samples of reports have the fields of today."""

import inspect
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dagster_airbyte_proto import ConnectorResource, SparkSessionResource, SparkTableIOManager, StreamChecks
from dagster_airbyte_proto.connection import (
    Connection,
    Connector,
    Destination,
    DockerLaunch,
    LoadLimits,
    LocalLaunch,
    ManifestLaunch,
    NpmLaunch,
    ProgramLaunch,
    PushOptions,
    PypiLaunch,
    ReplayLaunch,
    StreamOptions,
    WasmLaunch,
)
from dagster_airbyte_proto.connection.launch import ConnectorLimits, ConnectorTimeouts, RelayDestination
from dagster_airbyte_proto.connection.push import BatchOptions, RateOptions
from dagster_airbyte_proto.connection.rapidbyte.component_options import OverrideOptions, SchemaEvolutionOptions
from dagster_airbyte_proto.connection.transforms import CacheOptions, RangeOptions, RuleOptions, TransformOptions
from dagster_airbyte_proto.connection.types import TypeOptions
from dagster_airbyte_proto.dagster_defs.definitions.component_fields import PartitionDiscovery, Retries, TableSensor
from dagster_airbyte_proto.loads.push import PlannedCounts
from dagster_airbyte_proto.settings import CatalogSettings, CompactAfter, SettingsFile
from dagster_airbyte_proto.sync.push_report import PushedField, PushedStreamReport, PushReport
from dagster_airbyte_proto.sync.report import ConnectorReport, LineCounts, Seconds, StreamReport, SyncReport

DOCS = Path(__file__).parent.parent / "docs"
_MODELS: dict[str, tuple[type, ...]] = {
    "connections.md": (
        Connection, Connector, ConnectorLimits, RelayDestination, Destination, LoadLimits, TypeOptions, StreamOptions,
        ProgramLaunch, LocalLaunch, PypiLaunch, NpmLaunch, WasmLaunch, ReplayLaunch,
        SettingsFile, CatalogSettings, CompactAfter,
    ),
    "containers.md": (DockerLaunch,),
    "low-code.md": (ManifestLaunch,),
    "push.md": (PushOptions, BatchOptions, RateOptions),
    "rapidbyte.md": (OverrideOptions, SchemaEvolutionOptions),
    "syncmaven.md": (ConnectorTimeouts,),
    "transforms.md": (TransformOptions, RuleOptions, RangeOptions, CacheOptions),
    "dagster/assets.md": (ConnectorResource, Retries, TableSensor),
    "dagster/automation.md push.md": (StreamChecks,),
    "dagster/partitions.md": (PartitionDiscovery,),
    "dagster/tables.md": (SparkSessionResource, SparkTableIOManager),
}  # fmt: skip


@pytest.mark.parametrize(
    ("pages", "model"),
    [pytest.param(pages, each, id=each.__name__) for pages, models in _MODELS.items() for each in models],
)
def test_each_key_is_on_its_page(pages: str, model: type) -> None:
    text = "".join((DOCS / page).read_text() for page in pages.split())
    keys = _keys(model)
    assert keys and [key for key in keys if not re.search(rf"\b{key}[`:=]", text)] == []


def _keys(model: type) -> list[str]:
    """The keys that the model has beside those of its bases, as users write them."""
    fields: dict[str, Any] = getattr(model, "model_fields", {})
    own = [name for name in inspect.get_annotations(model) if not name.startswith("_")]
    return [getattr(fields.get(name), "alias", None) or name for name in own]


def test_the_sample_of_a_sync_has_the_fields_of_its_report() -> None:
    sample = _sample("command-line.md", "## The report of a sync")
    assert sample.keys() == _fields(SyncReport)
    [stream] = sample["streams"].values()
    assert stream.keys() == _fields(StreamReport)
    assert stream["emitted"] + stream["added"] == stream["committed"] + stream["rejected"] + stream["unknown"]
    assert stream["rejected"] == sum(stream["rejections"].values())
    assert sample["lines"].keys() == _fields(LineCounts)
    assert sample["connector"].keys() == _fields(ConnectorReport)
    assert sample["seconds"].keys() == _fields(Seconds)


def test_the_sample_of_a_push_has_the_fields_of_its_report() -> None:
    sample = _sample("push.md", "### The report")
    assert sample.keys() == _fields(PushReport)
    [stream] = sample["streams"].values()
    assert stream.keys() == _fields(PushedStreamReport)
    assert stream["sent"] == stream["acknowledged"] + stream["rejected"] + stream["unknown"]
    assert stream["planned"].keys() == _fields(PlannedCounts)
    [field] = stream["fields"].values()
    assert field.keys() == _fields(PushedField)


def _sample(page: str, heading: str) -> dict[str, Any]:
    """The first JSON below a heading."""
    text = (DOCS / page).read_text().partition(f"\n{heading}\n")[2]
    sample: dict[str, Any] = json.loads(text.partition("```json\n")[2].partition("```")[0])
    return sample


def _fields(report: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(report)}
