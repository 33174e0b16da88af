"""The streams' JSON Schemas, for contenders that take their column types from the catalog."""

import json
from pathlib import Path
from typing import Any


def json_schemas(catalog_path: str) -> dict[str, dict[str, Any]]:
    """By stream name, in the catalog's order."""
    streams = json.loads(Path(catalog_path).read_text())["catalog"]["streams"]
    return {stream["name"]: stream["json_schema"] for stream in streams}
