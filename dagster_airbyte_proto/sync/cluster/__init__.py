"""Syncs as tasks of a Spark cluster: their connectors run on executors, and the driver keeps the store and the tables.

1. `cluster_sync` (driver) opens a `Channel` and runs one Spark task for each sync (`tables/spark/tasks.py`).
2. `sync_task` (executor) fetches its `SyncOrder` over the channel, and runs the sync as it would on the driver. Its
   state store, its tables and its cached answers are stubs (`remote_calls.py`) whose calls go to the driver.
3. The connector's records are staged on the executor, straight into the table's location. The driver commits the files
   by reference, and the blocking commit is the back-pressure.

Each attempt of a task acquires a lease of its own, and supersedes earlier attempts. A lease never travels in a task.
"""
