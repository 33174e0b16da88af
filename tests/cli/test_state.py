"""State by hand, and the loads log."""

import json
import sys
from contextlib import closing
from pathlib import Path

import pytest

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.loads.load import Load, StagedRows, TransformState
from dagster_airbyte_proto.model import StreamId, TableName, WriteMode
from dagster_airbyte_proto.protocols.airbyte.states import AirbyteStates
from dagster_airbyte_proto.testing import fake_tap
from tests.cli.conftest import USERS, Place
from tests.sync.read.test_failures import mounted


@pytest.fixture
def synced(place: Place) -> Place:
    place.json("sync", place.connect({"streams": {"users": {"records": 25}, "orders": {"records": 4}}}))
    return place


def states(place: Place) -> dict[str, object]:
    return {stored["stream"]: stored["state"] for stored in place.json("state", "show", "shop")["states"]}


def test_state_goes_there_and_back_again(synced: Place) -> None:
    assert states(synced) == {"users": {"next": 25}, "orders": {"next": 4}}
    before = synced.json("state", "history", "shop")["history"][0]["version"]
    [change] = synced.json("state", "set", "shop", "users", '{"next": 10}')["changes"]
    assert (change["why"], change["state"]) == ("set", {"next": 10})
    assert states(synced)["users"] == {"next": 10}
    assert synced.json("sync", "shop.yaml")["streams"]["users"]["emitted"] == 15
    synced.json("state", "reset", "shop.yaml", "users")
    assert set(states(synced)) == {"orders"}
    synced.json("state", "rollback", "shop", "--to", str(before))
    assert states(synced) == {"users": {"next": 25}, "orders": {"next": 4}}
    whys = [change["why"] for change in synced.json("state", "history", "shop")["history"]]
    assert whys[0] == "rollback" and {"set", "reset", "sync"} <= set(whys)


def test_bookmarks_of_a_tap_are_shown_set_and_reset_one_by_one(place: Place) -> None:
    tap = {"protocol": "singer", "launch": {"kind": "local", "command": fake_tap.command()}}
    streams = {"users": {"records": 25}, "orders": {"records": 4}}
    file = place.connect({"streams": streams}, connector=tap)
    place.json("sync", file)

    def bookmarks() -> object:
        [kept] = place.json("state", "show", "shop")["states"]
        return kept["streams"]

    assert bookmarks() == {"users": {"next": 25}, "orders": {"next": 4}}
    result = place.run("state", "show", "shop", "orders").out
    assert '{"next": 4}' in result and '{"next": 25}' not in result
    place.json("state", "set", "shop", "users", '{"next": 10}')
    assert bookmarks() == {"users": {"next": 10}, "orders": {"next": 4}}
    assert place.json("sync", file)["streams"]["users"]["emitted"] == 15
    place.json("state", "reset", "shop", "orders")
    assert bookmarks() == {"users": {"next": 25}}


def test_resetting_the_whole_forgets_every_stream(synced: Place) -> None:
    synced.json("state", "reset", "shop")
    assert states(synced) == {}
    assert synced.run("state", "show", "shop").out.strip() == "shop has no states"
    assert synced.json("sync", "shop.yaml")["streams"]["orders"]["emitted"] == 4


def test_a_limit_may_be_any_number(synced: Place) -> None:
    many = ("--limit", "9" * 30)
    assert len(synced.json("state", "history", "shop", *many)["history"]) == 2
    assert len(synced.json("loads", "list", "shop", *many)["loads"]) == 1
    assert synced.json("table", "changes", "shop", *many)["changes"] == []


def test_history_names_the_user_who_changed_it(synced: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    synced.run("state", "set", "shop", "users", "1")
    assert synced.json("state", "history", "shop", "--limit", "1")["history"][0]["who"] == "ada"
    assert "ada" in synced.run("state", "history", "shop").out


def test_a_new_state_may_come_from_a_file(synced: Place) -> None:
    Path("state.json").write_text('{"next": 7}')
    synced.json("state", "set", "shop", "users", "@state.json")
    assert states(synced)["users"] == {"next": 7}


def test_a_new_state_is_stored_digit_by_digit_or_refused(synced: Place) -> None:
    store = SqlStore("sqlite:///.airbyte-proto/state.db")
    local, wasm = {"kind": "local", "command": ["tap"]}, {"kind": "wasm", "path": "source.wasm"}
    for protocol, stream, launch in (
        ("airbyte", "users", local),
        ("singer", None, local),
        ("rapidbyte", "users", wasm),
    ):
        file = synced.connect(USERS, protocol, connector={"protocol": protocol, "launch": launch})
        words = [file, *([stream] if stream else [])]
        synced.json("state", "set", *words, '{"at": 1764374400.123456789012, "id": 123456789012345678901234}')
        [stored] = store.states(protocol)
        assert b"1764374400.123456789012" in stored.state.message
        assert b"123456789012345678901234" in stored.state.message
        for refused in ('{"at": 1e400}', '{"at": "\\ud800"}', '{"at": NaN}'):
            assert "it is not JSON" in synced.json("state", "set", *words, refused, code=2)["error"]["message"]
        assert store.states(protocol) == [stored]


def test_a_state_is_shown_with_all_its_digits_and_can_be_set_again(synced: Place) -> None:
    written = '{"at": 1764374400.123456789012, "id": 123456789012345678901234, "text": "é"}'
    store = SqlStore("sqlite:///.airbyte-proto/state.db")
    for protocol, stream in (("airbyte", ["users"]), ("singer", [])):
        launch = {"kind": "local", "command": ["tap"]}
        file = synced.connect(USERS, protocol, connector={"protocol": protocol, "launch": launch})
        synced.json("state", "set", file, *stream, written)
        [before] = store.states(protocol)
        for words in (
            ["show", protocol],
            ["show", protocol, "--json"],
            ["history", protocol, "--json"],
            ["list", "--json"],
        ):
            shown = synced.run("state", *words).out
            assert "1764374400.123456789012" in shown and "123456789012345678901234" in shown, words
        shown = synced.run("state", "show", protocol, "--json").out
        assert json.loads(shown)["states"][0]["stream"] == (stream[0] if stream else None)
        again = shown.partition('"state": ')[2].partition(', "version"')[0]
        synced.json("state", "set", file, *stream, again)
        [after] = store.states(protocol)
        assert (after.state.message, after.version > before.version) == (before.state.message, True)


def test_a_connection_that_never_synced_gets_a_state_by_its_name(place: Place) -> None:
    place.connect(USERS)
    place.json("state", "set", "shop", "users", '{"next": 10}')
    assert place.json("sync", "shop")["streams"]["users"]["emitted"] == 15


def test_a_state_is_set_of_no_connection_that_nobody_knows(place: Place) -> None:
    place.connect(USERS)
    refused = place.json("state", "set", "shpo", "users", '{"next": 10}', code=2)["error"]
    assert "no connection file here, or one folder below, has that name" in refused["message"]
    assert not (place.folder / ".airbyte-proto").exists()


def test_secrets_in_states_are_masked_for_a_name_too(synced: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    file = synced.folder / "shop.yaml"
    written = json.loads(file.read_text())
    written["config"]["password"] = "${env:SHOP_PASSWORD}"
    file.write_text(json.dumps(written))
    monkeypatch.setenv("SHOP_PASSWORD", "open sesame")
    synced.json("state", "set", "shop", "users", '{"next": 10, "token": "open sesame"}')
    commands = [("show", "shop"), ("show", "shop.yaml"), ("history", "shop"), ("list",)]
    for words in commands:
        shown = synced.run("state", *words).out + synced.run("state", *words, "--json").out
        assert "***" in shown and "sesame" not in shown, words
    file.write_text("connector: {")
    for words in (("show", "shop"), ("history", "shop"), ("list",)):
        assert synced.run("state", *words).code == 0, words


def test_a_value_that_was_copied_with_its_secrets_masked_is_refused(synced: Place) -> None:
    before = states(synced)
    for words in (['{"next": 3, "token": "***"}'], ['"***"', "--key", "token"]):
        refused = synced.json("state", "set", "shop", "users", *words, code=2)["error"]
        assert "which stands for a secret" in refused["found"]
    assert states(synced) == before
    store = SqlStore("sqlite:///.airbyte-proto/state.db")
    lease = store.acquire("shop", run_id="r", holder="one", seconds=60)
    store.change_state(lease, StreamId.of("users"), AirbyteStates().from_value(StreamId.of("users"), "***"), who="ann")
    store.release(lease)
    synced.json("state", "set", "shop", "users", '"*** of its own"')
    assert states(synced)["users"] == "*** of its own"


def test_a_value_alone_is_the_state_of_the_whole(place: Place) -> None:
    file = place.connect({**USERS, "state": "global"})
    place.json("sync", file)
    shared = {"shared_state": {"total": 5}, "stream_states": [
        {"stream_descriptor": {"name": "users"}, "stream_state": {"next": 5}}
    ]}  # fmt: skip
    place.json("state", "set", "shop", json.dumps(shared))
    assert states(place) == {None: shared}
    assert place.json("sync", file)["streams"]["users"]["emitted"] == 20
    place.json("state", "reset", "shop", "users")
    [rest] = states(place).values()
    assert rest == {"shared_state": {"total": 25}, "stream_states": []}
    assert place.json("sync", file)["streams"]["users"]["emitted"] == 25
    refused = place.json("state", "reset", "shop", "orders", code=2)
    assert refused["error"]["kind"] == "ConfigError"


def test_the_part_of_one_stream_is_set_in_a_state_that_all_share(place: Place) -> None:
    users = {"records": 25, "namespace": "eu"}
    file = place.connect({"streams": {"users": users, "orders": {"records": 4}}, "state": "global"})
    place.json("sync", file)
    place.json("state", "set", "shop", "eu.users", '{"next": 10}')
    streams = place.json("sync", file)["streams"]
    assert {name: stream["emitted"] for name, stream in streams.items()} == {"eu.users": 15, "orders": 0}
    for name in ("eu.users", "users"):
        place.json("state", "reset", "shop", name)
        streams = place.json("sync", file)["streams"]
        assert {name: stream["emitted"] for name, stream in streams.items()} == {"eu.users": 25, "orders": 0}
    refused = place.json("state", "reset", "shop", "carts", code=2)
    assert refused["error"]["remedy"] == "There are states of: eu.users, orders"


def test_the_part_of_one_stream_is_shown_of_a_state_that_all_share(place: Place) -> None:
    users = {"records": 25, "namespace": "eu"}
    place.json("sync", place.connect({"streams": {"users": users, "orders": {"records": 4}}, "state": "global"}))
    for name in ("eu.users", "users"):
        [kept] = place.json("state", "show", "shop", name)["states"]
        assert (kept["stream"], kept["streams"]) == (None, {"eu.users": {"next": 25}})
    shown = place.run("state", "show", "shop", "users").out
    assert '{"next": 25}' in shown and '{"next": 4}' not in shown
    assert "It is a part of the state that its streams share" in shown
    refused = place.json("state", "show", "shop", "carts", code=2)["error"]
    assert "the streams share one state, and it names no stream 'carts'" in refused["message"]
    assert refused["remedy"].startswith("It names eu.users, orders.")


def test_a_legacy_state_is_set_as_a_whole_alone(place: Place) -> None:
    place.json("sync", place.connect({**USERS, "state": "legacy"}))
    before = states(place)
    refused = place.json("state", "set", "shop", "users", '{"next": 1}', code=2)
    assert "a single stream cannot be set in it" in refused["error"]["message"]
    assert states(place) == before


def test_a_legacy_state_is_reset_as_a_whole_alone(place: Place) -> None:
    place.json("sync", place.connect({**USERS, "state": "legacy"}))
    refused = place.json("state", "reset", "shop", "users", code=2)
    assert refused["error"]["kind"] == "ConfigError"
    assert "cannot be set in it or removed from it" in refused["error"]["message"]


def test_streams_with_a_namespace_go_by_their_full_name_or_their_bare_one(place: Place) -> None:
    place.json("sync", place.connect({"streams": {"users": {"records": 2, "namespace": "eu"}}}))
    for name in ("eu.users", "users"):
        [stored] = place.json("state", "show", "shop", name)["states"]
        assert stored["stream"] == "eu.users"
    place.json("state", "set", "shop", "eu.users", '{"next": 1}')
    assert states(place) == {"eu.users": {"next": 1}}
    for position, name in enumerate(("users", '"eu"."users"'), start=2):
        assert not place.run("state", "set", "shop", name, json.dumps({"next": position})).err
        assert states(place) == {"eu.users": {"next": position}}
    place.json("state", "set", "shop", "orders", '{"next": 1}', "--namespace", "eu")
    assert set(states(place)) == {"eu.users", "eu.orders"}
    place.json("state", "set", "shop", "users", '{"next": 1}', "--namespace", "")
    assert set(states(place)) == {"eu.users", "eu.orders", "users"}


def test_a_stream_of_which_nothing_is_known_is_warned_about(synced: Place) -> None:
    known, unknown = (synced.run("state", "set", "shop", name, '{"next": 1}') for name in ("users", "user"))
    assert (known.code, known.err, unknown.code) == (0, "", 0)
    assert "warning: nothing is known of a stream user of shop. Is its name right, and its --namespace?" in unknown.err


def test_a_value_that_is_no_state_is_refused(synced: Place) -> None:
    before = states(synced)
    refused = synced.json("state", "set", "shop", '{"stream_states": [{"stream": "users"}]}', code=2)["error"]
    assert (refused["kind"], refused["found"]) == ("ConfigError", "the state names no stream")
    assert states(synced) == before


@pytest.mark.parametrize(
    "message",
    [
        '{"type": "STREAM", "stream": {"stream_descriptor": {"name": "users"}, "stream_state": {"next": 1}}}',
        '[{"streamDescriptor": {"name": "users"}, "streamState": {"next": 1}}]',
    ],
)
def test_a_message_with_a_state_in_it_is_refused(synced: Place, message: str) -> None:
    before = states(synced)
    for words in (["users", message], [message]):
        refused = synced.json("state", "set", "shop", *words, code=2)["error"]
        assert (refused["kind"], "it is a message" in refused["found"]) == ("ConfigError", True)
    assert states(synced) == before


def test_a_state_of_the_whole_says_which_it_has_displaced(synced: Place) -> None:
    before, version = states(synced), synced.json("state", "history", "shop")["history"][0]["version"]
    out = synced.run("state", "set", "shop", '{"next": 1}').out
    assert f"the place of the states of orders, users: `airbyte-proto state rollback shop --to {version}`" in out
    synced.json("state", "rollback", "shop", "--to", str(version))
    assert states(synced) == before


def test_states_that_go_forward_past_a_rollback_may_be_ahead_of_their_rows(synced: Place) -> None:
    version = synced.json("state", "history", "shop")["history"][0]["version"]
    back = synced.run("state", "rollback", "shop", "--to", "0")
    assert (back.code, back.err) == (0, "")
    forward = synced.run("state", "rollback", "shop", "--to", str(version))
    assert forward.err.startswith(f"warning: the states were rolled back since version {version}. If tables went back")
    assert f"`airbyte-proto state rollback shop --to {version} --tables`" in forward.err


def test_a_rollback_with_tables_that_is_stopped_says_that_it_is_to_be_repeated(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    place.connect(USERS)
    place.json("state", "set", "shop", "users", '{"next": 10}')
    monkeypatch.setattr(SqlStore, "rollback", stopped)
    result = place.run("state", "rollback", "shop", "--to", "0", "--tables")
    assert (result.code, "Run the rollback again: until then" in result.err) == (130, True)


def test_the_states_of_a_relay_are_rolled_back_and_no_table(place: Place) -> None:
    launch = {"kind": "local", "command": [sys.executable, "-m", "dagster_airbyte_proto.testing.fake_destination"]}
    config = {"path": str(place.folder / "out.jsonl")}
    to = {"connector": {"protocol": "airbyte", "launch": launch}, "config": config}
    place.json("sync", place.connect(USERS, streams={"users": {"write": "append"}}, to=to))
    assert states(place) == {"users": {"next": 25}}
    done = place.json("state", "rollback", "shop", "--to", "0", "--tables")
    assert (states(place), done["tables"]) == ({}, [])
    refused = place.json("table", "compact", "shop", code=2)
    assert "no load of it has been committed to a table" in refused["error"]["message"]


def test_state_list_shows_every_connection(synced: Place) -> None:
    synced.json("sync", synced.connect(USERS, "other"))
    connections = synced.json("state", "list")["connections"]
    assert {result["connection"]: len(result["states"]) for result in connections} == {"shop": 2, "other": 1}
    assert '{"next": 25}' in synced.run("state", "list").out


def test_the_loads_log_tells_what_each_load_held(synced: Place) -> None:
    [load] = synced.json("loads", "list", "shop")["loads"]
    assert (load["status"], load["streams"]["users"]["rows"]) == ("done", 25)
    shown = synced.json("loads", "show", load["load_id"])
    assert {part["stream"] for part in shown["parts"]} == {"users", "orders"}
    assert {landed["stream"] for landed in shown["committed"]} == {"users", "orders"}
    assert load["load_id"] in synced.run("loads", "list", "shop").out
    assert "announced" in synced.run("loads", "show", load["load_id"]).out


def test_a_load_is_shown_without_what_transforms_keep(synced: Place) -> None:
    kept = TransformState("0", '{"token": "hunter22"}')
    part = StagedRows(StreamId.of("users"), TableName("shop", "users"), WriteMode.APPEND, transform_states=(kept,))
    with closing(SqlStore("sqlite:///.airbyte-proto/state.db")) as store:
        lease = store.acquire("shop", run_id="r", holder="one", seconds=60)
        store.announce(lease, Load("l1", "shop", "r", (part,), ()))
    shown = synced.run("loads", "show", "l1", "--json")
    assert (shown.code, "hunter22" in shown.out, '"transform_states": []' in shown.out) == (0, False, True)


def test_a_store_of_secrets_that_is_down_keeps_no_command_from_working_that_needs_no_secret(
    synced: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAULT_ADDR", "http://127.0.0.1:1")
    monkeypatch.setenv("VAULT_TOKEN", "s.root")
    monkeypatch.setenv("SHOP_NAME", "next")
    file = synced.folder / "shop.yaml"
    written = json.loads(file.read_text())
    written["config"] |= {"password": "${vault:secret/data/shop#password}", "user": "${vault:secret/data/shop#user}"}
    written["config"]["name"] = "${env:SHOP_NAME}"
    file.write_text(json.dumps(written))
    [load] = synced.json("loads", "list", "shop.yaml")["loads"][:1]
    shown = synced.run("state", "show", "shop.yaml")
    assert (shown.code, "25" in shown.out) == (0, True), shown.err
    assert shown.err.count("warning: secrets in states of shop are not masked: reading secret/data/shop of Vault") == 1
    assert '"next"' not in shown.out, "a secret that can be filled is masked all the same"
    for words in (
        ["status", "shop.yaml"],
        ["state", "list"],
        ["state", "set", "shop.yaml", "users", '{"next": 10}'],
        ["state", "history", "shop.yaml"],
        ["state", "reset", "shop.yaml"],
        ["config", "history", "shop.yaml"],
        ["loads", "show", load["load_id"]],
        ["recover", "shop.yaml"],
        ["envs", "list"],
    ):
        result = synced.run(*words)
        assert result.code == 0, (words, result.err)
        assert "Vault" not in result.err or words[0] == "state", (words, result.err)
    failed = synced.run("sync", "shop.yaml")
    assert failed.code == 1 and "reading secret/data/shop of Vault" in failed.err and "Traceback" not in failed.err


def test_states_and_status_are_shown_from_a_read_only_disk(synced: Place) -> None:
    home = synced.folder / ".airbyte-proto"
    commands = [
        ("state", "list"), ("state", "show", "shop", "users"), ("state", "history", "shop"), ("loads", "list", "shop"),
        ("table", "changes", "shop"), ("config", "history", "shop"),
    ]  # fmt: skip
    before = [synced.json(*words) for words in commands]
    with mounted(home, "--bind", "-o", "ro", str(home)):
        assert [synced.json(*words) for words in commands] == before
        assert synced.json("status")["connections"][0]["rows"] == 29
        refused = synced.json("state", "reset", "shop", code=2)["error"]
    assert "Make the file and its folder writable" in refused["message"]
    assert synced.json("state", "reset", "shop")["status"] == "complete"
