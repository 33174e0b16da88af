"""The rows that an enrichment makes of a partition, by a real process."""

import pickle
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError, ConnectorError, ProtocolViolation
from dagster_airbyte_proto.sync.enrichment.row_enrichment import RowEnrichment, check_enrichment

_FIELDS = [("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC")), ("cost", pa.decimal128(9, 2))]
_GIVEN = pa.schema(_FIELDS)
_MADE = pa.schema([*_FIELDS, ("city", pa.string())])
_AT = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)


def connection_of(config: Mapping[str, Any], **connector: Any) -> Connection:
    launch = {"kind": "local", "command": [sys.executable, "-m", "dagster_airbyte_proto.testing.fake_enrichment"]}
    document = {"protocol": "syncmaven", "launch": launch, **connector}
    return Connection.model_validate({"name": "geo", "connector": document, "config": dict(config)})


def batches_of(*numbers: int, name: str = "Łódź") -> Iterator[pa.RecordBatch]:
    for start in range(0, len(numbers), 4):
        rows = [{"id": each, "name": name, "at": _AT, "cost": Decimal("1.50")} for each in numbers[start : start + 4]]
        yield pa.RecordBatch.from_pylist(rows, _GIVEN)


def enriched(folder: Path, *numbers: int, schema: pa.Schema = _MADE, **config: Any) -> list[dict[str, Any]]:
    made = pickle.loads(pickle.dumps(RowEnrichment(connection_of(config), {"prefix": "the "}, folder, None)))
    return [row for batch in made(batches_of(*numbers), schema) for row in batch.to_pylist()]


def test_a_row_becomes_none_one_or_several(tmp_path: Path) -> None:
    rows = enriched(tmp_path, *range(1, 10))
    assert [row["id"] for row in rows] == [1, 2, 2, 4, 5, 5, 7, 8, 8]
    assert rows[0] == {"id": 1, "name": "Łódź", "at": _AT, "cost": Decimal("1.50"), "city": "the city 1"}


def test_many_rows_go_both_ways_at_once(tmp_path: Path) -> None:
    rows = enriched(tmp_path, *range(1, 3001, 3))
    assert [row["id"] for row in rows] == list(range(1, 3001, 3))


def test_rows_are_taken_only_as_fast_as_their_replies_are(tmp_path: Path) -> None:
    taken = []

    def wide_rows() -> Iterator[pa.RecordBatch]:
        for number in range(1, 301, 3):
            taken.append(number)
            yield from batches_of(number, name="x" * 200_000)

    made = RowEnrichment(connection_of({}), {}, tmp_path, None)(wide_rows(), _MADE)
    sizes = [next(made).nbytes]
    assert len(taken) < 50
    sizes += [batch.nbytes for batch in made]
    assert (len(taken), max(sizes) < 8 << 20, sum(sizes) > 20_000_000) == (100, True, True)


def test_a_process_gets_no_more_rows_than_its_rate(tmp_path: Path) -> None:
    made = RowEnrichment(connection_of({}), {}, tmp_path, None, rows_per_second=8)
    began_at = time.monotonic()
    assert sum(batch.num_rows for batch in made(batches_of(*range(1, 37, 3)), _MADE)) == 12
    assert time.monotonic() - began_at > 1.2


def test_a_connector_of_the_specification_is_spoken_to_in_its_words(tmp_path: Path) -> None:
    connection = connection_of({}, env_vars=["FAKE_DIALECT=seed"])
    made = RowEnrichment(connection, {}, tmp_path, None)
    assert [row["city"] for batch in made(batches_of(1, 4), _MADE) for row in batch.to_pylist()] == ["city 1", "city 4"]


def test_columns_that_do_not_come_back_are_null_and_others_are_left_out(tmp_path: Path) -> None:
    schema = pa.schema([("city", pa.string()), ("country", pa.string())])
    assert enriched(tmp_path, 1, schema=schema) == [{"city": "the city 1", "country": None}]


def test_bytes_come_back_as_they_were(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("raw", pa.binary()), ("none", pa.binary())])
    row = {"id": 1, "raw": b"\x00\xff text", "none": None}
    made = RowEnrichment(connection_of({}), {}, tmp_path, None)
    batch = pa.RecordBatch.from_pylist([row], schema)
    assert [each for rows in made(iter([batch]), schema) for each in rows.to_pylist()] == [row]
    with pytest.raises(ProtocolViolation, match="does not fit the schema of the new rows"):
        list(made(iter([batch]), pa.schema([("city", pa.binary())])))


@pytest.mark.parametrize(
    ("config", "error", "kind"),
    [
        ({"halts_at": 4}, "no more credits", ConnectorError),
        ({"halts_at": 4, "halt_status": "ok"}, "no more credits", ConnectorError),
        ({"halts_at": 4, "halt_type": ""}, "no more credits", ConnectorError),
        ({"dies_at": 4}, "exited with code 7", ConnectorError),
        ({"replies_of": {"x": 1}}, "does not fit the schema of the new rows", ProtocolViolation),
    ],
)
def test_a_partition_fails_with_its_process(
    tmp_path: Path, config: dict[str, Any], error: str, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=error):
        enriched(tmp_path, *range(1, 2000 if kind is ConnectorError else 20), **config)


def test_rows_after_a_halt_without_a_type_are_not_dropped(tmp_path: Path) -> None:
    halt = {"halts_at": 4, "halt_status": "ok", "halt_type": ""}
    with pytest.raises(
        ConnectorError, match=r"ended with the status ok \(no more credits\), and sent 3 replies to 5 rows"
    ):
        enriched(tmp_path, 1, 2, 3, 4, 5, **halt)
    assert [row["id"] for row in enriched(tmp_path, 3, 4, 5, 6, greets=True)] == [4, 5, 5]


def test_a_row_that_json_cannot_carry_fails_with_its_path(tmp_path: Path) -> None:
    made = RowEnrichment(connection_of({}), {}, tmp_path, None)
    batch = pa.RecordBatch.from_pylist([{"id": 1, "x": 1.0}, {"id": 2, "x": float("inf")}])
    with pytest.raises(ConfigError, match="1 of 2 rows cannot be sent; the first is row 2: x is inf"):
        list(made(iter([batch]), batch.schema))


def _check(connection: Connection, folder: Path, rate: float | None = None) -> None:
    check_enrichment(RowEnrichment(connection, {}, folder, None, rate))


def test_only_an_enrichment_is_taken(tmp_path: Path) -> None:
    _check(connection_of({}), tmp_path, 0.5)
    command = [sys.executable, "-m", "dagster_airbyte_proto.testing.fake_syncmaven"]
    destination = connection_of({"path": "out"}, launch={"kind": "local", "command": command})
    with pytest.raises(ConfigError, match="no enrichment: its roles are destination"):
        _check(destination, tmp_path)
    with pytest.raises(ConfigError, match="only Syncmaven has enrichments"):
        _check(connection_of({}, protocol="singer"), tmp_path)


def test_what_a_frame_has_no_use_for_is_refused(tmp_path: Path) -> None:
    pushed = {"push": {"people": {"from": "lake.shop.people", "key": ["id"]}}, "rate": {"rows_per_second": 5}}
    queried = {"transforms": [{"sql": "SELECT * FROM input"}], "parallel": 8}
    for more, names in ((pushed, "push, rate"), (queried, "parallel, transforms")):
        document = {**connection_of({}).model_dump(exclude_unset=True), **more}
        with pytest.raises(ConfigError, match=f"it has {names}, which a frame has no use for"):
            _check(Connection.model_validate(document), tmp_path)
    for rate in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="rows_per_second is"):
            _check(connection_of({}), tmp_path, rate)
