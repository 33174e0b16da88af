"""The push section of a connection file: what it takes, and what it refuses in which words."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import ChangesBy, PushMode

_PUSH = {"from": "lake.shop.users", "key": ["id"]}


def _connection(folder: Path, push: dict[str, Any], **more: Any) -> Connection:
    path = folder / "crm.yaml"
    launch = {"kind": "local", "command": ["target"]}
    connector = {"protocol": "singer", "launch": launch}
    path.write_text(yaml.safe_dump({"connector": connector, "push": {"contacts": push}, **more}))
    return Connection.from_file(path)


def test_the_time_for_a_result_is_for_syncmaven(tmp_path: Path) -> None:
    launch = {"kind": "local", "command": ["target"]}
    connector = {"protocol": "syncmaven", "launch": launch, "timeouts": {"result_seconds": 60}}
    assert _connection(tmp_path, _PUSH, connector=connector).connector.timeouts.result_seconds == 60
    with pytest.raises(ConfigError, match="for connectors that send results"):
        _connection(tmp_path, _PUSH, connector={**connector, "protocol": "singer"})


def test_the_defaults(tmp_path: Path) -> None:
    connection = _connection(tmp_path, _PUSH)
    assert connection.push is not None
    options = connection.push["contacts"]
    assert (options.mode, options.changes_by) == (PushMode.UPSERT, ChangesBy.DIFF)
    assert (str(options.max_removed), str(options.max_rejected)) == ("10 %", "1 %")
    assert options.max_removed.allows(1, 10)
    assert not options.max_removed.allows(2, 10)


@pytest.mark.parametrize(
    ("push", "more", "found"),
    [
        ({"key": ["id"]}, {}, "give `from`, a table, or `sql`"),
        ({**_PUSH, "sql": "SELECT 1"}, {}, "one of them"),
        ({"from": "lake.shop.users"}, {}, "mode upsert with changes: diff needs a `key`"),
        ({**_PUSH, "mode": "mirrored"}, {}, "mirror"),
        ({**_PUSH, "changes": "cursor"}, {}, "needs a `cursor`"),
        ({**_PUSH, "cursor": "at"}, {}, "a `cursor` is for changes: cursor"),
        ({"sql": "SELECT 1", "key": ["id"], "changes": "snapshots"}, {}, "a query has no snapshots"),
        ({**_PUSH, "mode": "mirror", "changes": "all"}, {}, "it needs changes: diff"),
        ({**_PUSH, "mode": "overwrite", "changes": "diff"}, {}, "leave `changes` out"),
        ({**_PUSH, "removals": "version"}, {}, "removals: version is for mode mirror"),
        ({**_PUSH, "max_removed": "many"}, {}, 'a share such as "10 %"'),
        ({**_PUSH, "max_removed": "200 %"}, {}, 'a share such as "10 %"'),
        ({**_PUSH, "options": {"a": 1}}, {}, "options"),
        ({**_PUSH, "form": "lake.shop.users"}, {}, "from"),
        ({**_PUSH, "map": {"a": {"valu": 1}}}, {}, "map: a must be a column, or {value: …}, or {sql: …}"),
        ({**_PUSH, "map": {"a": 1}}, {}, "map: a must be a column, or {value: …}, or {sql: …}"),
        (_PUSH, {"streams": ["users"]}, "streams: only for one that reads its connector"),
        ({"from": "a.b", "mode": "overwrite"}, {"checkpoint_rows": 10}, "goes to one process as a whole"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, push: dict[str, Any], more: dict[str, Any], found: str) -> None:
    with pytest.raises(ConfigError) as error:
        _connection(tmp_path, push, **more)
    assert found in str(error.value)


def test_what_is_for_pushes_alone(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    launch = {"kind": "local", "command": ["source"]}
    path.write_text(yaml.safe_dump({"connector": {"protocol": "airbyte", "launch": launch}, "on_error": "skip"}))
    with pytest.raises(ConfigError, match="on_error: only for one with a push"):
        Connection.from_file(path)
