"""The keys of records of a relay, by which a newer record is known to take the place of an older one.

A record of a key that a destination rejected must not be sent again once a newer one of the key was: the destination
would go back to the older one. So it is forgotten before the newer one is sent, and from then on it does not matter
what becomes of that: it is taken, or is rejected and kept itself, or comes again from the source.
"""

import json
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from dagster_airbyte_proto.checkpoints.deliveries import KeptRejection
from dagster_airbyte_proto.encoding.record_lines import record_objects
from dagster_airbyte_proto.loads.storage import LOCAL
from dagster_airbyte_proto.model import PushMode
from dagster_airbyte_proto.sync.push.plan.plan_rows import plan_batches
from dagster_airbyte_proto.sync.push.row_rules import RowRules
from dagster_airbyte_proto.sync.relay.relay_plan import RelayPlan

RecordKey = tuple[Hashable, ...]
# `json.loads` would make one for each record: a third of its time.
_DECODER = json.JSONDecoder(parse_float=Decimal)


def key_of_record(text: str, keys: Sequence[str]) -> RecordKey | None:
    """Returns the key of a record; None for text that is no JSON object, or where a field of the key is null or
    absent: no two such records are one, so none takes the place of another."""
    try:
        record = _DECODER.decode(text)
    except (ValueError, RecursionError, ArithmeticError):  # The last: an exponent beyond those of a Decimal.
        return None
    values = [record.get(key) for key in keys] if isinstance(record, dict) else [None]
    return None if None in values else tuple(map(_comparable, values))


def replaced_by(plan: RelayPlan, kept: Sequence[KeptRejection]) -> list[KeptRejection]:
    """Returns the kept records of whose keys the plan has newer ones. Raises StagingError where its files are gone."""
    keys = plan.formed[0].form.target.keys
    if plan.plan.mode is not PushMode.UPSERT or not kept or not keys:
        return []
    found = [
        (each, key_of_record(each.record, keys)) for each in kept if each.record is not None and not each.is_of_source
    ]
    newer = last_rows(plan, {key for _, key in found if key is not None})
    return [each for each, key in found if key in newer]


def last_rows(plan: RelayPlan, wanted: Collection[RecordKey]) -> Mapping[RecordKey, int]:
    """Returns the last row of each of these keys in a plan.

    It parses every record of the plan, for which there is no other need: call it only for a stream that has rejected
    records. A million of 450 bytes took 3.6 CPU seconds.
    """
    found: dict[RecordKey, int] = {}
    if wanted:
        found.update((key, row) for row, key in _keys_of_rows(plan) if key is not None and key in wanted)
    return found


def _keys_of_rows(plan: RelayPlan) -> Iterator[tuple[int, RecordKey | None]]:
    begin = 0
    for formed in plan.formed:
        keys, rules = formed.form.target.keys, RowRules(form=formed.form)
        for batch in plan_batches(plan.plan, LOCAL, begin, formed.end):
            sent = rules.columns_of(batch.rows)
            texts = sent.column(0) if formed.form.record_column else record_objects(sent.select(list(keys)))
            for place, text in enumerate(texts):
                yield batch.start + place, key_of_record(_text(text), keys)
        begin = formed.end


def _text(scalar: Any) -> str:
    try:
        return str(scalar.as_py())
    except UnicodeDecodeError:  # It is refused before it is sent, and replaces nothing.
        return ""


def _comparable(value: object) -> Hashable:
    """A value of a key. Numbers are equal as numbers, with all their digits; true is not 1."""
    if isinstance(value, dict):
        return ("object", *sorted((name, _comparable(each)) for name, each in value.items()))
    if isinstance(value, list):
        return ("array", *map(_comparable, value))
    return ("boolean", value) if isinstance(value, bool) else value
