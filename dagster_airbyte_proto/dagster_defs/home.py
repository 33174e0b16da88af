"""The folder that the command line and Dagster share, unless somebody names another."""

import os
from pathlib import Path


def home_folder(named: Path | str | None = None) -> Path:
    """What was named; else the environment's `AIRBYTE_PROTO_HOME`, or `.airbyte-proto` in the working directory."""
    return Path(named or os.environ.get("AIRBYTE_PROTO_HOME") or ".airbyte-proto")
