"""Whether tables hold what a connector sent, cell by cell.

    python -m tests.fidelity CONNECTION.yaml [--modes append,overwrite] [--home FOLDER]

runs the connector once and keeps its bytes, replays them into Iceberg tables in each write mode, reads those through
Spark, and tells of each cell whether it is equal to what was sent or accounted for in `_airbyte_meta.changes`. It ends
with 1 where one is neither. In Python that is `kept`, `check` and a `Report`; what a value should land as is said in
`expectation`, which shares no code with what lands it.
"""
