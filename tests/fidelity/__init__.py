"""Whether tables hold what a connector sent, cell by cell.

`compare` (in `report`) sets the records of a stream, read from the connector's own bytes by `sent_records`, beside the
rows of its table: each cell is equal to what was sent, accounted for in `_airbyte_meta.changes`, or wrong. What a value
should land as is said in `expectation`, which shares no code with what lands it.
"""
