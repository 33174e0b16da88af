"""The values that a load is made of go to other processes and machines."""

import pickle

import pyarrow as pa
import pytest

from dagster_airbyte_proto.loads.load import (
    BranchPosition,
    FileContent,
    HighWaterMark,
    Load,
    ResumePoint,
    StagedFile,
    StagedRows,
)
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.loads.table import TableFit, TableSpec, TableTarget
from dagster_airbyte_proto.model import (
    PlannedStream,
    ReadMode,
    State,
    StateScope,
    Stream,
    StreamId,
    TableName,
    WriteMode,
)
from dagster_airbyte_proto.protocols.airbyte.records import RECORD_WIRE
from dagster_airbyte_proto.protocols.conversation import Invocation, ReadRequest

_USERS = StreamId("shop", "users")
_TABLE = TableName("shop", "users")
_STATE = State(StateScope.STREAM, b'{"next": 3}', _USERS)
_PART = StagedRows(
    _USERS,
    _TABLE,
    WriteMode.OVERWRITE_DEDUP,
    files=(StagedFile("/lake/a.parquet", FileContent.ROWS, 3, 400, (1, None)),),
    keys=("id",),
    emitted=3,
    rows=3,
    high_water_mark=HighWaterMark(("updated_at",), ("3",), "2026-01-01"),
    branch_position=BranchPosition("airbyte_proto_shop", "l0", True, "print"),
)
_SCHEMA = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
_PLANNED = PlannedStream(Stream(_USERS, {"type": "object"}), _TABLE, ReadMode.INCREMENTAL, WriteMode.APPEND)

_VALUES = [
    Load("l1", "shop", "r1", (_PART,), (_STATE,), (ResumePoint(2, _STATE),)),
    TableSpec(_TABLE, _SCHEMA, ("id",), slice_column="day"),
    TableTarget(_TABLE, _SCHEMA, "/lake/shop/users", "lake.shop.users", TableFit(landed={"id": "long"})),
    ReadRequest({"count": 1}, (_PLANNED,), (_STATE,), 7, (_PLANNED.stream,)),
    Invocation(("read",), {"config.json": b"{}"}),
    RECORD_WIRE,
]


@pytest.mark.parametrize("value", _VALUES, ids=lambda value: type(value).__name__)
def test_a_value_is_the_same_after_it_was_pickled(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value


def test_a_storage_reaches_the_same_files_after_it_was_pickled() -> None:
    settings = {"s3.endpoint": "http://127.0.0.1:9", "s3.access-key-id": "a", "s3.secret-access-key": "b"}
    storage = Storage({**settings, "client.region": "eu-west-1"})
    storage.at("s3://bucket/key")  # opens a file system, which cannot be pickled

    copied: Storage = pickle.loads(pickle.dumps(storage))

    filesystem, path = copied.at("s3://bucket/key")
    assert (filesystem, path) == storage.at("s3://bucket/key")
