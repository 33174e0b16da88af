"""The home folder, which the command line and Dagster share by default."""

import os
from pathlib import Path


def home_folder(named: Path | str | None = None) -> Path:
    """The `named` folder, else the environment's `AIRBYTE_PROTO_HOME`, else `.airbyte-proto` where the process runs."""
    return Path(named or os.environ.get("AIRBYTE_PROTO_HOME") or ".airbyte-proto")
