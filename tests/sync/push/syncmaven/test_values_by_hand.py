"""The values that a destination keeps, on the command line: shown, set, reset, and rolled back as a state is."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.cli.main import main
from tests.sync.push.pushed_table import PushedTable, person


class Keeping(PushedTable):
    """A destination that keeps the name of each of eight rows."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        super().__init__(folder, protocol="syncmaven")
        self._capture = capture
        self.config["keeps"] = True
        self.options["checkpoint_rows"] = 4
        self.fill([person(number) for number in range(8)])

    def state(self, *words: str, code: int = 0) -> Any:
        options = ["--home", str(self.home), "--settings", str(self.settings_file)]
        assert main([*options, "state", *words, "--json"]) == code
        return json.loads(self._capture.readouterr().out)

    def refused(self, *words: str) -> str:
        return str(self.state(*words, code=2)["error"]["message"])


@pytest.fixture
def keeping(quick_folder: Path, capsys: pytest.CaptureFixture[str]) -> Keeping:
    return Keeping(quick_folder, capsys)


SEVEN = ("--key", "row", "--key", "7")


def test_a_value_goes_there_and_back_again(keeping: Keeping) -> None:
    keeping.contacts()
    before = keeping.state("history", "crm")["history"][0]["version"]
    [change] = keeping.state("set", "crm", "contacts", '"by hand"', *SEVEN)["changes"]
    assert (change["why"], change["stream"], change["version"]) == ("set 1 value", "contacts", before + 1)
    assert change["state"] is not None
    assert keeping.kept_names()[7] == "by hand"
    assert keeping.contacts().planned.to_send == 0  # Its position is as it was.
    [dropped] = keeping.state("reset", "crm", "contacts", "--key", "row")["changes"]
    assert (dropped["why"], keeping.kept_names()) == ("dropped all values under 1 prefix", {})
    [back] = keeping.state("rollback", "crm", "--to", str(before))["changes"]
    assert (back["why"], back["version"]) == ("rollback of values", before + 3)
    assert keeping.kept_names() == {number: f"person {number}" for number in range(8)}


def test_a_value_may_be_the_first_of_its_stream(keeping: Keeping) -> None:
    file = keeping.folder / "value.json"
    file.write_text(' {"n": 1e2}\n')
    keeping.state("set", "crm", "contacts", f"@{file}", "--key", "cursor")
    [kept] = keeping.state("show", "crm", "contacts")["kept_values"]
    assert kept == {
        "stream": "contacts",
        "partition": "",
        "count": 1,
        "bytes": 19,
        "values": [{"key": ["cursor"], "value": {"n": 100.0}}],
    }
    [change] = keeping.state("history", "crm")["history"]
    assert (change["why"], change["state"]) == ("set 1 value", None)
    assert keeping.state("reset", "crm", "contacts")["changes"][0]["why"] == "reset"
    assert keeping.state("show", "crm")["kept_values"] == []


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("{", *SEVEN), "reading the kept value: it is not JSON"),
        (("NaN", *SEVEN), "it is not JSON: NaN is no value of it"),
        (("1", *("--key", "a") * 65), "a key has 1 to 64 segments, and this one has 65"),
        (("1", "--key", "k" * 1999), "a key may have 2,000 bytes, and this one has 2,002"),
        (("1", "--key", "transform", "--key", "mask"), "the state of a transform"),
        (("1", "--key", "destination", "--key", "x"), "a component keeps texts, and this is none"),
    ],
)
def test_what_no_connector_could_set_is_refused(keeping: Keeping, words: tuple[str, ...], found: str) -> None:
    assert found in keeping.refused("set", "crm", "contacts", *words)
    with closing(SqlStore(keeping.settings.state_url)) as store:
        assert not store.history("crm")


def test_a_value_of_a_mebibyte_is_too_much(keeping: Keeping) -> None:
    file = keeping.folder / "value.json"
    for size, code in ((2**20 - 4, 2), (2**20 - 5, 0)):
        file.write_text(f'"{"x" * size}"')
        answer = keeping.state("set", "crm", "contacts", f"@{file}", "--key", "big", code=code)
    assert answer["changes"][0]["why"] == "set 1 value"


def test_a_key_that_is_not_there_cannot_be_reset(keeping: Keeping) -> None:
    keeping.contacts()
    assert "no value is kept under the key row / 99" in keeping.refused(
        "reset", "crm", "contacts", "--key", "row", "--key", "99"
    )
    assert keeping.state("history", "crm")["history"][0]["why"] != "reset"


def test_nothing_changes_while_another_run_has_the_connection(keeping: Keeping) -> None:
    keeping.contacts()
    with closing(SqlStore(keeping.settings.state_url)) as store:
        lease = store.acquire("crm", run_id="another", holder="somebody", seconds=60)
        for words in (("set", "crm", "contacts", "1", *SEVEN), ("reset", "crm", "contacts", *SEVEN)):
            assert "another" in keeping.state(*words, code=1)["error"]["message"]
        store.release(lease)
    assert keeping.kept_names()[7] == "person 7"
