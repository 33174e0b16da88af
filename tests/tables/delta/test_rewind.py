"""The rewinds that the log of a Delta table tells of. Reading it needs no session."""

import json
from pathlib import Path
from typing import NoReturn

from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.tables.care import PastRewind
from dagster_airbyte_proto.tables.delta.rewind import DeltaRewinder
from dagster_airbyte_proto.tables.delta.tables import DeltaTables
from dagster_airbyte_proto.tables.spark.settings import SparkSettings


def _no_session() -> NoReturn:
    raise AssertionError


def test_a_table_without_states_has_all_its_rewinds_at_one_version(tmp_path: Path) -> None:
    tables, name = DeltaTables(_no_session, SparkSettings(str(tmp_path))), TableName("shop", "users")
    log = Path(tables.location(name)) / "_delta_log"
    log.mkdir(parents=True)
    ours = [("", 0), ("", 0), ("0", 4), ("1", 4), ("nothing", 2)]
    for version, (target, at) in enumerate(ours):
        rewound = {"airbyte-proto.rewound-to": target, "airbyte-proto.rewound-at-version": str(at)}
        info = {"operation": "WRITE", "userMetadata": json.dumps(rewound if target else {})}
        (log / f"{version:020}.json").write_text(json.dumps({"commitInfo": info}))
    assert DeltaRewinder(tables).past(name).rewinds == (
        PastRewind(2, "4", None),
        PastRewind(4, "2", "0"),
        PastRewind(4, "3", "1"),
    )
