"""Finds the rows of a plan that a destination rejected, by the records that it showed for them.

A destination does not know our rows by number. It shows the record, in its own JSON: its key says which row it is, or
all of it where the stream has no key. A record that is no row that was sent stays unnamed, and is counted.
"""

import json
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any

from dagster_airbyte_proto.encoding.record_lines import record_objects
from dagster_airbyte_proto.loads.push import RejectedRow
from dagster_airbyte_proto.sync.push.plan.plan_rows import PlanBatch
from dagster_airbyte_proto.sync.push.row_rules import RowRules


class RejectedRecords:
    """The records that one process rejected, until their rows are found."""

    def __init__(self, rules: RowRules, keys: tuple[str, ...]) -> None:
        self._rules, self._keys = rules, keys
        self._waiting: dict[str, deque[str]] = defaultdict(deque)
        self.unnamed = 0
        """The records for which no row is found so far."""

    def add(self, text: str, reason: str) -> None:
        """Adds a record as the destination shows it. The reason is without secrets."""
        self.unnamed += 1
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            return
        if isinstance(record, dict) and all(key in record for key in self._keys):
            self._waiting[_identity(record, self._keys)].append(reason)

    @property
    def waiting(self) -> int:
        """The records whose rows may still be found, once they are proved."""
        return sum(len(reasons) for reasons in self._waiting.values())

    def rows(self, batches: Iterable[PlanBatch]) -> list[RejectedRow]:
        """The rows of these batches that were rejected. Each record is one row: the first that it may be."""
        return [row for batch in batches for row in self._rows_of(batch)] if self._waiting else []

    def _rows_of(self, batch: PlanBatch) -> list[RejectedRow]:
        sent = self._rules.columns_of(batch.rows)
        keys = [key for key in self._keys if key in sent.schema.names]
        objects = record_objects(sent.select(keys) if keys else sent)
        found = []
        for place, text in enumerate(objects.to_pylist()):
            identity = _identity(json.loads(text), self._keys)
            reasons = self._waiting.get(identity)
            if reasons:
                found.append(RejectedRow(batch.start + place, reasons.popleft()))
                self.unnamed -= 1
            if reasons is not None and not reasons:
                del self._waiting[identity]
        return found


def _identity(record: dict[str, Any], keys: tuple[str, ...]) -> str:
    return json.dumps({key: record.get(key) for key in keys} if keys else record, sort_keys=True)
