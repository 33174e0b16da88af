"""Connections and their saved catalogs, for tests of what assets are made of them."""

import json
from pathlib import Path
from typing import Any

import yaml

from dagster_airbyte_proto.connection import Connection

# Whoever starts this has failed the test: definitions are made without the connector.
NO_CONNECTOR = {"protocol": "airbyte", "launch": {"kind": "local", "command": ["/nowhere/connector"]}}
USERS = {
    "name": "users",
    "json_schema": {
        "description": "Who buys.",
        "properties": {
            "id": {"type": "integer", "description": "Their number."},
            "name": {"type": ["null", "string"]},
            "updated_at": {"type": "string", "format": "date-time"},
        },
    },
    "supported_sync_modes": ["full_refresh", "incremental"],
    "source_defined_primary_key": [["id"]],
    "default_cursor_field": ["updated_at"],
}
ORDERS = {
    "name": "orders",
    "namespace": "sales",
    "json_schema": {"properties": {"lines": {"type": "array", "items": {"type": "number"}}}},
}


def connection(**written: Any) -> Connection:
    return Connection.model_validate({"name": "shop", "connector": NO_CONNECTOR, **written})


def connection_file(folder: Path, **written: Any) -> Connection:
    """The same, read from `shop.yaml`."""
    file = folder / "shop.yaml"
    file.write_text(yaml.safe_dump({"connector": NO_CONNECTOR, **written}))
    return Connection.from_file(file)


def save(home: Path, *streams: dict[str, Any]) -> Path:
    """Keeps what the connector offers, as `discover --save` does."""
    path = home / "catalogs" / "shop.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"streams": streams}, indent=2))
    return path


def named(*names: str) -> list[dict[str, Any]]:
    """Streams of which only the name matters."""
    return [{"name": name, "json_schema": {}} for name in names]
