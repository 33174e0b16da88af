"""Metrics that Iceberg computes from a footer that we read."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import TableError
from dagster_airbyte_proto.loads.load import FileContent, StagedFile
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.tables.iceberg.metrics import FooterReader

pytestmark = pytest.mark.spark


def staged(path: Path, columns: int) -> StagedFile:
    fields = [
        pa.field(
            f"column {at}", (pa.int64(), pa.string(), pa.float64())[at % 3], metadata={"PARQUET:field_id": f"{at + 1}"}
        )
        for at in range(columns)
    ]
    values = [([7, None, at], ["a" * 40, None, f"é{at}"], [0.5, float("nan"), None])[at % 3] for at in range(columns)]
    pq.write_table(pa.table(values, schema=pa.schema(fields)), path)
    return StagedFile(str(path), FileContent.ROWS, 3, path.stat().st_size)


@pytest.mark.parametrize("columns", [3, 1000])
def test_they_are_those_that_iceberg_finds_by_itself(spark: SparkSession, tmp_path: Path, columns: int) -> None:
    """With many columns the footer is longer than the first read."""
    jvm: Any = spark._jvm
    file = staged(tmp_path / "rows.parquet", columns)
    config = jvm.org.apache.iceberg.MetricsConfig.getDefault()
    facts = FooterReader(spark, Storage({})).file_metrics(file, config)
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    its_own = jvm.org.apache.iceberg.hadoop.HadoopInputFile.fromLocation(file.path, hadoop)
    wanted = jvm.org.apache.iceberg.parquet.ParquetUtil.fileMetrics(its_own, config)
    assert facts.size_bytes == file.size_bytes
    assert facts.metrics.recordCount() == wanted.recordCount() == 3
    for each in ("columnSizes", "valueCounts", "nullValueCounts", "nanValueCounts", "lowerBounds", "upperBounds"):
        assert getattr(facts.metrics, each)() == getattr(wanted, each)(), each
    assert facts.metrics.lowerBounds()


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1 and no more of it PAR1", b"x" * 100])
def test_what_is_no_file_of_rows_is_told_by_its_place(spark: SparkSession, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(content)
    with pytest.raises(TableError, match=f"{path} is not a Parquet file any more"):
        FooterReader(spark, Storage({})).file_metrics(StagedFile(str(path), FileContent.ROWS, 1, 1), None)
