import datetime
import subprocess
import sys
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from dagster_airbyte_proto.dagster_defs.tables.frame_kinds import FrameKind, annotated_kind, kind_of, to_arrow
from dagster_airbyte_proto.errors import ConfigError


def _input(annotation: Any) -> dg.DagsterType:
    @dg.op(ins={"rows": dg.In(annotation)} if annotation is Any else {})
    def reading(rows: annotation) -> None: ...

    return reading.input_defs[0].dagster_type


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (Any, FrameKind.SPARK),
        (DataFrame, FrameKind.SPARK),
        (pd.DataFrame, FrameKind.PANDAS),
        (pa.Table, FrameKind.ARROW),
        (pl.DataFrame, FrameKind.POLARS),
    ],
)
def test_an_input_is_loaded_as_its_annotation_says(annotation: Any, kind: FrameKind) -> None:
    assert annotated_kind(_input(annotation), of="shop.users") is kind


class _OwnFrame(pd.DataFrame):
    pass


def test_a_frame_of_the_users_own_class_is_one_of_its_library() -> None:
    assert kind_of(_OwnFrame({"id": [1]}), of="users") is FrameKind.PANDAS


def test_an_annotation_that_is_no_frame_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError) as refused:
        annotated_kind(_input(datetime.date), of="shop.users")
    assert "datetime.date" in refused.value.found
    assert "polars.DataFrame" in refused.value.remedy


def test_a_frame_of_pandas_on_spark_is_refused() -> None:
    """It has the name of Spark's own; a pandas-on-Spark session is not needed to see that."""
    kind = type("DataFrame", (), {"__module__": "pyspark.pandas.frame"})
    with pytest.raises(ConfigError, match=r"pyspark\.pandas\.frame\.DataFrame"):
        kind_of(kind(), of="users")


def test_a_value_that_is_no_frame_is_refused_by_its_type_alone() -> None:
    with pytest.raises(ConfigError) as refused:
        kind_of({"password": "secret"}, of="users")
    assert "builtins.dict" in str(refused.value)
    assert "secret" not in str(refused.value)


ROWS = pa.table({"id": [1, 2], "name": ["a", None]})


@pytest.mark.parametrize("value", [ROWS, ROWS.to_pandas(), pl.from_arrow(ROWS)])
def test_every_kind_of_frame_becomes_the_same_rows(value: Any) -> None:
    assert to_arrow(value, kind_of(value, of="users")).to_pylist() == ROWS.to_pylist()


def test_numbers_without_a_sign_get_one() -> None:
    rows = pa.table({"small": pa.array([255], pa.uint8()), "big": pa.array([2**64 - 1], pa.uint64())})
    signed = to_arrow(pl.from_arrow(rows), FrameKind.POLARS)
    assert signed.schema.types == [pa.int16(), pa.decimal128(20, 0)]
    assert signed.to_pylist() == [{"small": 255, "big": 2**64 - 1}]
    nested = to_arrow(pl.DataFrame({"ranks": [[1, 2]]}, {"ranks": pl.List(pl.UInt32)}), FrameKind.POLARS)
    assert nested.schema.types == [pa.large_list(pa.int64())]
    assert nested.to_pylist() == [{"ranks": [1, 2]}]
    of_structs = pa.table({"pairs": pa.array([[{"a": 1}]], pa.list_(pa.struct([("a", pa.uint8())])))})
    assert to_arrow(of_structs, FrameKind.ARROW).schema.types == [pa.list_(pa.struct([("a", pa.int16())]))]


def test_an_io_manager_imports_no_spark_of_its_own() -> None:
    """The Spark resource does: dagster-pyspark's, on which ours builds, imports pyspark."""
    script = (
        "import sys; import dagster as dg; from dagster_airbyte_proto.dagster_defs.tables import io_manager;"
        "io_manager.SparkTableIOManager(spark=None); print('pyspark' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "False\n"


def test_the_index_of_pandas_is_left_behind() -> None:
    frame = ROWS.to_pandas().set_index(pd.Index(["x", "y"], name="index"))
    assert to_arrow(frame, FrameKind.PANDAS).column_names == ["id", "name"]
