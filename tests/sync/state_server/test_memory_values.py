"""The values that an enrichment has in memory: they answer as those of a destination, within limits of their own."""

from pathlib import Path
from random import Random

import pytest

from dagster_airbyte_proto.checkpoints.kept_values import stored_key
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.checkpoints.transform_states import TRANSFORMS
from dagster_airbyte_proto.sync.state_server.memory_values import (
    LIMITS_OF_STATE,
    MemoryValues,
    state_of_values,
    values_of_state,
)
from dagster_airbyte_proto.sync.state_server.pending_values import LimitExceeded, PendingValues, ValueLimits
from tests.sync.state_server.test_server import ASSET


def test_they_answer_as_those_of_a_destination(quick_folder: Path) -> None:
    store = SqlStore(f"sqlite:///{quick_folder}/state.db")
    pending, memory = PendingValues(store, ASSET, ValueLimits()), MemoryValues({}, LIMITS_OF_STATE)
    random = Random(7)
    keys = [tuple(random.choices(('a"', "ł", "\ud83d", "c"), k=random.randint(1, 3))) for _ in range(40)]
    for step in range(150):
        key, change = random.choice(keys), random.random()
        if change < 0.6:
            for each in (pending, memory):
                each.set(key, b"%d" % step)
        elif change < 0.8:
            assert pending.delete(key) == memory.delete(key)
        else:
            assert pending.delete_all(key) == memory.delete_all(key)
        memory = MemoryValues(values_of_state(state_of_values(memory.now())), LIMITS_OF_STATE)  # the next process
        prefix = random.choice(keys)
        assert pending.get(prefix) == memory.get(prefix)
        assert list(pending.list(prefix)) == list(memory.list(prefix))
        assert pending.size(prefix) == memory.size(prefix)
    store.close()


def test_a_value_that_is_set_again_or_dropped_takes_no_more_room() -> None:
    values = MemoryValues({("old",): b"1"}, ValueLimits(kept=3, kept_bytes=400))
    for _ in range(10):
        for number in range(2):
            values.set((str(number),), b"x" * 60)
        values.set(("old",), b"2")
        with pytest.raises(LimitExceeded, match="may keep 3 values and 400 bytes"):
            values.set(("one more",), b"1")
        assert values.delete_all(("1",)) == 1
        with pytest.raises(LimitExceeded):
            values.set(("1",), b"x" * 300)
    assert values.now() == {("old",): b"2", ("0",): b"x" * 60}
    assert values.refused == "a stream may keep 3 values and 400 bytes"


def test_a_key_has_room_in_an_index() -> None:
    values = MemoryValues({}, LIMITS_OF_STATE)
    with pytest.raises(LimitExceeded, match="a key may have 600 bytes"):
        values.set(("é" * 100,), b"1")
    longest = ('"' * 298,)
    values.set(longest, b"1")
    [text] = state_of_values(values.now())
    name = "ł" * 66 + ": " + "ł" * 33  # as long as the name of an enrichment may be
    assert len(stored_key((TRANSFORMS, name, "branch", "values", text))) < 2000
