"""Builds source.wasm: `python build.py`. It takes seconds, and needs the packages wasmtime and ziglang."""

from pathlib import Path

from dagster_airbyte_proto.connector_kit.build import build, component_of_c

raise SystemExit(build(Path(__file__).parent, component_of_c))
