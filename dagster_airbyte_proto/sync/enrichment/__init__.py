"""Enrichments of Syncmaven on Spark DataFrames: a process of the connector for each partition, where Spark runs it."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagster_airbyte_proto.connection import Connection
    from dagster_airbyte_proto.tables.spark.mapped_frames import Frame, FrameSchema


def enrich(
    frame: "Frame",
    connection: "Connection",
    *,
    options: Mapping[str, Any] | None = None,
    schema: "FrameSchema | None" = None,
    rows_per_second: float | None = None,
    home: Path | str | None = None,
    settings: Path | str | None = None,
) -> "Frame":
    """Returns a frame of the rows that an enrichment makes of those of `frame`: none, one or several of each.

    `connection` has the connector and its config, `options` are those of the enrichment. `schema` is that of the new
    rows; without it they have the columns of the frame. Each partition gets a process of its own once Spark computes
    it, and another one where Spark computes it again; each gets at most `rows_per_second`. There is no cache. Raises
    ConfigError if the connector is no enrichment, if its config is wrong, or if the connection has more than connector
    and config: nothing else of it would count.
    """
    from dagster_airbyte_proto.project_folder import expanded, home_folder
    from dagster_airbyte_proto.sync.enrichment.row_enrichment import RowEnrichment, check_enrichment
    from dagster_airbyte_proto.tables.spark.mapped_frames import mapped_frame

    file = None if settings is None else expanded(settings).absolute()
    make_rows = RowEnrichment(connection, dict(options or {}), home_folder(home).absolute(), file, rows_per_second)
    check_enrichment(make_rows)
    return mapped_frame(frame, make_rows, schema)
