"""An Airbyte source that has one stream, `proxied` or `direct`, as its environment says. Runs under `-S`."""

import json
import os
import sys
from typing import Any

STREAM = "proxied" if "HTTPS_PROXY" in os.environ else "direct"


def catalog(stream: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
    return {"streams": [{"name": stream, "json_schema": schema, "supported_sync_modes": ["full_refresh"]}]}


def tell(message: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(message)}\n")


if __name__ == "__main__":
    verb = sys.argv[1]
    if verb == "spec":
        tell({"type": "SPEC", "spec": {"connectionSpecification": {"type": "object"}}})
    elif verb == "discover":
        tell({"type": "CATALOG", "catalog": catalog(STREAM)})
    else:
        tell({"type": "RECORD", "record": {"stream": STREAM, "data": {"id": 1}, "emitted_at": 1}})
