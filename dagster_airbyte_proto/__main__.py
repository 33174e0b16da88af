"""`python -m dagster_airbyte_proto` is `airbyte-proto`."""

import sys

from dagster_airbyte_proto.cli.main import main

sys.exit(main())
