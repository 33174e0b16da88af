"""A run that has slept past its lease, by a clock that is handed in: what it learns before it goes on."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.errors import StateConflict
from dagster_airbyte_proto.sync.lease import LeaseRenewal, LeaseWait, acquire_lease
from dagster_airbyte_proto.testing.faults import CallFault, CallFaults, with_faults

_SECONDS = 60.0


class _Night:
    """A store, and the run that sleeps. Its clock and that of the store go together."""

    def __init__(self, folder: Path) -> None:
        self._slept = 0.0
        self._store = SqlStore(f"sqlite:///{folder / 'state.db'}", clock=self._now)
        self.faults = CallFaults({("renew", "*"): CallFault.BEFORE})
        self.run = self._acquire(self._store)
        self.cut_off = with_faults(self._store, self.faults)

    def acquire_by_another(self) -> LeaseRenewal:
        return self._acquire(self._store)

    def acquire_from_a_store_that_does_not_answer(self) -> LeaseRenewal:
        return self._acquire(self.cut_off)

    def sleep(self, seconds: float) -> None:
        self._slept += seconds

    def ends_at(self) -> datetime:
        [lease] = self._store.current_leases("crm")
        return lease.expires_at - timedelta(seconds=_SECONDS)

    def close(self) -> None:
        self._store.close()

    def _acquire(self, store: SqlStore) -> LeaseRenewal:
        return acquire_lease(store, "crm", "run", _SECONDS, LeaseWait(clock=lambda: self._slept))

    def _now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self._slept)


@pytest.fixture
def night(quick_folder: Path) -> Iterator[_Night]:
    opened = _Night(quick_folder)
    yield opened
    opened.close()


def test_it_learns_of_the_run_that_has_taken_over(night: _Night) -> None:
    night.sleep(_SECONDS + 1)
    night.acquire_by_another()
    with pytest.raises(StateConflict, match="took it over"):
        night.run.check()


def test_it_renews_a_lease_that_nobody_wanted(night: _Night) -> None:
    night.sleep(_SECONDS - 1)
    night.run.check()
    assert night.ends_at() == datetime(2026, 1, 1, tzinfo=UTC)
    night.sleep(2)
    night.run.check()
    assert night.ends_at() == datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=_SECONDS + 1)
    with pytest.raises(StateConflict, match="has held it since"):
        night.acquire_by_another()


def test_it_goes_on_where_the_store_does_not_answer_and_does_not_ask_it_each_time(night: _Night) -> None:
    night.sleep(_SECONDS + 1)
    run = night.acquire_from_a_store_that_does_not_answer()
    night.sleep(_SECONDS + 1)
    for _ in range(10):
        run.check()
    assert night.faults.calls["renew"] == 1
