"""Makes `python -m dagster_airbyte_proto` the same as the command `airbyte-proto`."""

import sys

from dagster_airbyte_proto.cli.main import main

sys.exit(main())
