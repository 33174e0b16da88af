"""Loads are stored as JSON. What an older version stored is still read, and the names in the JSON stay the same."""

import msgspec

from dagster_airbyte_proto.loads.load import BranchPosition, HighWaterMark, StagedRows
from dagster_airbyte_proto.model import StreamId, TableName, WriteMode

PART = StagedRows(
    StreamId.of("users"),
    TableName("shop", "users"),
    WriteMode.OVERWRITE,
    high_water_mark=HighWaterMark(("updated_at",), ("2026",), "2026-01-01", "7"),
    branch_position=BranchPosition("airbyte_proto_shop_generation_2", "l1", True, "f00d", 3),
)
STORED = (
    b'{"stream":[null,"users"],"table":["shop","users"],"write":"overwrite",'
    b'"newest":{"cursor":["updated_at"],"values":["2026"],"emitted_at":"2026-01-01","version":"7"},'
    b'"aside":{"branch":"airbyte_proto_shop_generation_2","after":"l1","publishes":true,"likeness":"f00d","schema_id":3}}'
)


def test_a_part_that_an_older_version_stored_is_read() -> None:
    assert msgspec.json.decode(STORED, type=StagedRows) == PART


def test_a_part_is_stored_under_the_names_of_older_versions() -> None:
    stored = msgspec.json.decode(msgspec.json.encode(PART))
    for name, value in msgspec.json.decode(STORED).items():
        assert stored[name] == value
