"""The SCHEMA message that a Singer target gets before its records."""

from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.sync.report import SyncStatus
from tests.sync.push.pushed_table import PushedTable, person
from tests.sync.relay.relayed_shop import RelayedShop

_CURSOR = {"changes": "cursor", "cursor": "id"}


@pytest.mark.parametrize(
    ("push", "transforms", "bookmarks"),
    [
        (_CURSOR, [], ["id"]),
        ({}, [], []),
        (_CURSOR | {"cursor": "score", "map": {"id": "id", "points": "score"}}, [], ["points"]),
        (_CURSOR | {"cursor": "score", "map": {"id": "id", "score": {"value": 1.0}}}, [], []),
        (_CURSOR | {"cursor": "score"}, [{"sql": "SELECT id, score AS points FROM input"}], ["points"]),
        (_CURSOR | {"cursor": "score"}, [{"sql": "SELECT id, score + 1 AS score FROM input"}], []),
        (
            _CURSOR | {"cursor": "score", "map": {"id": "id", "points": "score"}},
            [{"sql": "SELECT id, points AS marks FROM input"}],
            ["marks"],
        ),
    ],
)
def test_the_cursor_of_a_push_is_a_bookmark_if_it_is_sent(
    quick_folder: Path, push: dict[str, Any], transforms: list[dict[str, Any]], bookmarks: list[str]
) -> None:
    table = PushedTable(quick_folder, protocol="singer")
    table.push |= push
    if transforms:
        table.options["transforms"] = transforms
    table.fill([person(1)])
    report = table.contacts()
    assert (report.status, report.error) == ("complete", None)
    [message] = [each for each in table.messages() if each["type"] == "SCHEMA"]
    assert message["bookmark_properties"] == bookmarks
    assert {*bookmarks} <= message["schema"]["properties"].keys()


@pytest.mark.parametrize(
    ("stream", "modes", "transforms", "bookmarks"),
    [
        ({}, {}, [], ["updated_at"]),
        ({"rows": [{"id": 1}], "properties": {"id": {"type": "integer"}}}, {}, [], []),
        ({}, {"read": "full_refresh"}, [], []),
        ({}, {"select": ["id"]}, [], []),
        ({}, {"rename_columns": {"updated_at": "changed"}}, [], ["changed"]),
        ({}, {"hash": ["updated_at"]}, [], []),
        ({}, {}, [{"sql": "SELECT id, updated_at AS changed FROM input"}], ["changed"]),
        ({}, {}, [{"sql": "SELECT id, updated_at + INTERVAL '1 day' AS updated_at FROM input"}], []),
    ],
)
def test_the_cursor_of_a_relayed_stream_is_a_bookmark_if_it_is_sent(
    quick_folder: Path,
    stream: dict[str, Any],
    modes: dict[str, Any],
    transforms: list[dict[str, Any]],
    bookmarks: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RELAY_KEY", "a key that is long enough")
    shop = RelayedShop(quick_folder, target="singer", max_bytes=1 << 20)
    shop.modes = {"users": {"write": "append", **modes}}
    shop.options |= {"hash_key": "${env:RELAY_KEY}"} | ({"transforms": transforms} if transforms else {})
    report = shop.sync_of({"streams": {"users": {"records": 2, **stream}}})
    assert report.status is SyncStatus.COMPLETE, report
    [message] = shop.messages("SCHEMA")
    assert message["bookmark_properties"] == bookmarks
    assert {*bookmarks} <= message["schema"]["properties"].keys()
