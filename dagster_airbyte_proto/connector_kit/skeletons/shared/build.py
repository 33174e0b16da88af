"""Builds source.wasm: `python build.py`."""

from pathlib import Path

from dagster_airbyte_proto.connector_kit.build import build, component_of_LANGUAGE

raise SystemExit(build(Path(__file__).parent, component_of_LANGUAGE))
