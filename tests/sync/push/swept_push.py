"""A push whose calls fail, or that is killed, at each step in turn: what has to hold after each, in any mode."""

from collections import Counter
from pathlib import Path

from tests.sync.push.pushed_table import PushedTable, Row, is_removal, person
from tests.sync.push.rapidbyte.component_table import ComponentTable

_SENT_ONCE = ("append", "insert")
"""The modes in which a row that is sent twice is there twice."""


class SweptPush:
    """The pushed table with rows that change from turn to turn.

    `echo` says how the destination acknowledges: `each` state at once, the last one at its `end`, `bare` states without
    an envelope, or by its `exit` alone. With `by files` a Singer target gets its records in files, and `by versions` it
    removes rows by them.
    """

    def __init__(self, table: PushedTable, *, mode: str, echo: str = "each") -> None:
        self.table, self.mode = table, mode
        self.people: dict[int, Row] = {}
        self._first: dict[int, Row] = {}
        self._ever: set[tuple[int, str]] = set()
        self._may_come_again: Counter[tuple[int, str]] = Counter()
        self._meanwhile: tuple[int, set[tuple[int, bool]]] = (0, set())
        self.batches = table.folder / "batches"
        table.push["key"] = ["id"]
        if mode != "overwrite":
            table.options["checkpoint_rows"] = 8
        if table.protocol == "syncmaven":
            table.config["keeps"] = True
        elif table.protocol in ("airbyte", "singer"):
            table.config |= {
                "end": {"echo": "end"},
                "bare": {"form": "bare"},
                "exit": {"echo": "never"},
            }.get(echo, {"echo": "each"})
        if echo == "exit":
            table.options["acknowledge"] = "exit"
        if echo == "by files":
            table.connector["batch_folder"] = str(self.batches)
        self.has_versions = echo == "by versions"
        if self.has_versions:
            table.push["removals"] = "version"

    @classmethod
    def of_fake(cls, folder: Path, protocol: str, mode: str, echo: str = "each") -> "SweptPush":
        """To the fake of a protocol, or to a component."""
        is_component = protocol == "rapidbyte"
        table = ComponentTable(folder, mode=mode) if is_component else PushedTable(folder, protocol=protocol, mode=mode)
        return cls(table, mode=mode, echo=echo)

    def fill(self, people: dict[int, Row]) -> None:
        """Sets the rows of the table."""
        self.people = people
        self._first = {number: self._first.get(number, each) for number, each in people.items()}
        self._ever |= {(each["id"], each["name"]) for each in people.values()}
        self.table.fill(list(people.values()))

    def change(self, turn: int) -> None:
        """Changes some rows, adds one, and removes one where removals are pushed."""
        people = dict(self.people)
        for number in list(people)[turn % 3 :: 3]:
            people[number] = person(number, f"{number} in turn {turn}")
        people[100 + turn] = person(100 + turn)
        if self.mode == "mirror":
            people.pop(99 + turn, None)
        self.fill(people)

    @property
    def names(self) -> dict[int, str]:
        return {number: each["name"] for number, each in self.people.items()}

    def proved(self) -> set[tuple[int, bool]]:
        """The rows that must not be sent again: those that are acknowledged, unless the mode always sends all."""
        return set() if self.mode == "overwrite" else self.table.acknowledged_ids()

    def have_unknown_sent(self) -> None:
        """Takes note of the rows that the next push sends again by the word of a person."""
        if self.mode in _SENT_ONCE:
            self._may_come_again.update((row["id"], row["name"]) for row in self.table.unknown_rows())

    def check_sent_since(self, place: int, proved: set[tuple[int, bool]], where: str) -> None:
        again = {(row["id"], is_removal(row)) for row in self.table.received()[place:]} & proved
        assert again == set(), where

    def run_meanwhile(self) -> None:
        """While a push sleeps past its lease, another one runs."""
        planned = self.table.planned_ids()
        self.table.run_meanwhile()
        # The files of a plan go with its end.
        is_complete = self.mode != "overwrite" and not self.table.planned_ids()
        self._meanwhile = len(self.table.received()), planned if is_complete else self.proved()

    def forget_meanwhile(self) -> None:
        self._meanwhile = 0, set()

    def check_sent_meanwhile(self, where: str) -> None:
        """The push that slept has sent nothing again which the other one had acknowledged."""
        place, proved = self._meanwhile
        self.check_sent_since(place, proved, f"{where}, and another one ran")

    def check_shown(self, before: list[Row], where: str) -> None:
        """Where all is replaced, the rows of before are shown, or those of now: never a part of them."""
        if self.mode == "overwrite":
            shown = self.table.shown()
            assert shown in (before, list(self.people.values())), where

    def check(self, where: str) -> None:
        """What holds once a push has come to its end."""
        people, table = self.people, self.table
        if self.mode == "overwrite":
            assert table.shown() == list(people.values()), where
            return
        assert table.delivered().keys() == people.keys(), where
        times = Counter((row["id"], row["name"]) for row in table.received() if not is_removal(row))
        if self.mode == "insert":
            assert times.keys() == {(each["id"], each["name"]) for each in self._first.values()}, where
        elif self.mode == "append" or table.protocol == "rapidbyte":
            assert times.keys() == self._ever, where
        else:
            assert (table.held_by_version() if self.has_versions else table.held()) == people, where
        if self.mode in _SENT_ONCE:
            again = {row: sent for row, sent in times.items() if sent > 1 + self._may_come_again[row]}
            assert again == {}, where
        if table.protocol == "syncmaven":
            assert table.kept_names() == self.names, where
