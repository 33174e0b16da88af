"""The options of `push`, each by the command line."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.cli.main import main
from tests.cli.conftest import Place
from tests.sync.push.pushed_table import PushedTable, Row, person


class Pushed:
    """A push by its command, with the table that it reads."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.table, self._capsys = PushedTable(folder, mode="mirror"), capsys

    def shown(self, *options: str, code: int = 0, with_errors: bool = True, lists: str | None = None) -> str:
        words = ["push", *([lists] if lists else []), str(self.table.connection_file())]
        return self.run(*words, *options, code=code, with_errors=with_errors)

    def run(self, *words: str, code: int = 0, with_errors: bool = False) -> str:
        places = ["--home", str(self.table.home), "--settings", str(self.table.settings_file)]
        self._capsys.readouterr()
        assert main([*places, *words]) == code
        printed = self._capsys.readouterr()
        return printed.out + (printed.err if with_errors else "")

    def listed(self, what: str, *options: str) -> str:
        return self.shown(*options, lists=what, with_errors=False)

    def contacts(self, *options: str, code: int = 0) -> Any:
        """The report of the only stream."""
        return json.loads(self.shown(*options, "--json", code=code, with_errors=False))["streams"]["contacts"]


@pytest.fixture
def pushed(quick_folder: Path, capsys: pytest.CaptureFixture[str]) -> Pushed:
    made = Pushed(quick_folder, capsys)
    made.table.fill([person(number) for number in range(1, 7)])
    return made


def _ids(rows: list[Row]) -> list[int]:
    return [row["id"] for row in rows]


def test_a_plan_shows_samples_and_sends_nothing(pushed: Pushed) -> None:
    planned = pushed.contacts("--plan", "--sample", "2")
    assert planned["planned"] == {"added": 6, "changed": 0, "removed": 0, "unchanged": 0}
    assert _ids(planned["samples"]["added"]) == [1, 2]
    shown = pushed.shown("--plan", "--sample", "1")
    assert "planned, nothing was sent" in shown and "person 1" in shown and "person 2" not in shown
    assert not pushed.table.received()
    logs = pushed.table.home / "logs"
    assert [*logs.glob("*/asked/*.log")] and not [*logs.glob("*/*.log")]  # `status` takes it for no refused push.


def test_a_plan_shows_null_and_what_is_not_removed_as_empty_cells(pushed: Pushed) -> None:
    pushed.table.fill([person(1, score=None), person(2)])
    pushed.table.push["mode"] = "upsert"
    assert pushed.contacts("--plan")["planned"]["removed"] is None
    shown = pushed.shown("--plan")
    assert "None" not in shown and "cannot tell" not in shown
    assert "false" in shown and "False" not in shown


@pytest.mark.nightly
def test_full_and_retried_rows(pushed: Pushed) -> None:
    pushed.table.fill([person(1), person(2, score=float("nan"))])
    assert pushed.contacts()["rejected"] == 1
    assert pushed.contacts()["sent"] == 0
    assert pushed.contacts("--retry-rejected")["rejected"] == 1
    assert pushed.contacts("--full")["acknowledged"] == 1
    assert _ids(pushed.table.received()) == [1, 1]


@pytest.mark.nightly
def test_unknown_rows_are_sent_again_by_the_option_alone(pushed: Pushed) -> None:
    pushed.table.push["mode"] = "append"
    pushed.table.config |= {"dies_after": 3, "once": str(pushed.table.folder / "once")}
    assert pushed.contacts(code=1)["unknown"] > 0
    assert "--retry-unknown" in pushed.contacts(code=1)["error"]
    assert pushed.contacts("--retry-unknown")["acknowledged"] == 6


def test_unknown_rows_are_listed_and_count_as_delivered_by_the_word_of_a_person(pushed: Pushed) -> None:
    pushed.table.fill([person(number) for number in range(1, 8)])
    pushed.table.push["mode"] = "append"
    pushed.table.config |= {"dies_after": 7, "once": str(pushed.table.folder / "once")}
    assert pushed.contacts(code=1)["unknown"] == 2
    listed = json.loads(pushed.listed("unknown", "--json"))["unknown"]["contacts"]
    assert (listed["count"], [json.loads(each["row"])["name"] for each in listed["rows"]]) == (
        2,
        ["person 6", "person 7"],
    )
    shown = pushed.listed("unknown")
    assert "2 rows sent and not acknowledged" in shown
    lines = [line.partition("{") for line in shown.splitlines() if "{" in line]
    assert [json.loads(brace + rest)["bad"] for _, brace, rest in lines] == [False, False]
    assert "is not N/M" in pushed.shown("--unknown-landed", "3/2", code=2)
    assert pushed.contacts("--unknown-landed", "1/2")["unknown"] == 0
    assert _ids(pushed.table.received()) == [*range(1, 8)]
    assert json.loads(pushed.listed("unknown", "--json"))["unknown"]["contacts"] == {
        "count": 0,
        "partition": None,
        "rows": [],
    }


def test_a_push_goes_on_from_a_state_that_was_set(pushed: Pushed) -> None:
    pushed.table.push |= {"mode": "append", "changes": "cursor", "cursor": "id"}
    pushed.contacts()
    shown = pushed.run("state", "show", str(pushed.table.connection_file()), "--json")
    [state] = json.loads(shown)["states"]
    value = json.dumps({**state["state"], "cursor": "4"})
    pushed.run("state", "set", str(pushed.table.connection_file()), "contacts", value)
    assert pushed.contacts()["acknowledged"] == 2


def test_a_state_that_is_no_position_of_a_push_is_refused_and_the_position_stays(pushed: Pushed) -> None:
    pushed.contacts()
    file = str(pushed.table.connection_file())
    before = pushed.run("state", "show", file, "--json")
    for words, found in (
        (["contacts", '{"next": 5}'], "it is no position of a push"),
        (["contacts", "null"], "it is no position of a push"),
        (['{"next": 5}'], "each of its streams has a position of its own"),
    ):
        refused = json.loads(pushed.run("state", "set", file, *words, "--json", code=2))["error"]
        assert (found in refused["message"], "state" in refused["remedy"]) == (True, True)
    assert pushed.run("state", "show", file, "--json") == before
    assert pushed.contacts()["sent"] == 0
    pushed.table.stream = "eu contacts"
    words = ["state", "set", str(pushed.table.connection_file()), "eu contacts", "{}", "--json"]
    remedy = json.loads(pushed.run(*words, code=2))["error"]["remedy"]
    assert remedy.endswith("airbyte-proto state reset crm 'eu contacts'")


def test_only_the_streams_that_are_named_are_pushed(pushed: Pushed) -> None:
    pushed.table.other_streams["others"] = pushed.table.push
    assert "it has contacts, others" in pushed.shown("--streams", "nobody", code=2).lower()
    pushed.shown("--streams", "others")
    assert pushed.table.received("others") and not pushed.table.received("contacts")


@pytest.mark.spark
@pytest.mark.nightly
def test_rejected_rows_are_listed_with_their_reasons_until_they_are_delivered(pier: Place) -> None:
    pier.json("sync", pier.connect({"streams": {"users": {"records": 3}}}))
    command = [sys.executable, "-m", "dagster_airbyte_proto.testing.fake_destination"]
    destination = {
        "connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": command}},
        "config": {"path": str(pier.folder / "out.jsonl")},
    }
    score = "if(id = 2, double('NaN'), 0.5D)"
    for sql, acknowledged, rejected in ((score, 2, 1), ("0.5D", 1, 0)):
        users = {
            "from": f"{pier.catalog}.shop.users",
            "key": ["id"],
            "mode": "upsert",
            "max_rejected": "100 %",
            "map": {"id": "id", "score": {"sql": sql}},
        }
        crm = pier.connect({}, "crm", **destination, push={"users": users})
        report = pier.json("push", crm)["streams"]["users"]
        assert (report["acknowledged"], report["rejected"]) == (acknowledged, rejected)
        found = pier.json("push", "rejected", crm)["rejected"]["users"]
        assert [each["reason"] for each in found] == ["score is nan, which JSON does not have"] * rejected
        assert [json.loads(each["row"])["id"] for each in found] == [2] * rejected
        assert all(each["rejected_at"] for each in found)
