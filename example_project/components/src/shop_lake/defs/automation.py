"""What sets syncs going: a schedule, a sensor that looks at a file, and jobs that people launch."""

from pathlib import Path

import dagster as dg

from dagster_airbyte_proto import Connection, build_connection_jobs, build_sync_sensor, files_changed

EXAMPLE = Path(__file__).parents[4]


@dg.definitions
def automation() -> dg.Definitions:
    connections = [Connection.from_file(EXAMPLE / "connections" / f"{name}.yaml") for name in ("shop", "customers")]
    return dg.Definitions(
        jobs=[job for connection in connections for job in build_connection_jobs(connection)],
        schedules=[
            dg.ScheduleDefinition(
                name="nightly",
                target=dg.AssetSelection.groups("shop"),
                cron_schedule="0 3 * * *",
                execution_timezone="UTC",
            )
        ],
        sensors=[
            build_sync_sensor(
                "new_customers",
                target=dg.AssetSelection.groups("customers"),
                probe=files_changed(EXAMPLE / "data" / "customers.csv"),
            )
        ],
    )
