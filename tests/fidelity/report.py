"""Cell by cell: what was sent beside what landed. The report names places and reasons, never values."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from dagster_airbyte_proto.model import FieldPath, PlannedStream, WriteMode
from dagster_airbyte_proto.schema.columns import EXTRACTED_AT, META, RAW_ID, WHOLE_RECORD, Columns, ValueKind, ValueType
from dagster_airbyte_proto.schema.json_schema import table_columns
from tests.fidelity.expectation import NULLED, alike, expected, parsed
from tests.fidelity.sent import Sent

_KEYED = {WriteMode.APPEND_DEDUP, WriteMode.OVERWRITE_DEDUP, WriteMode.SOFT_DELETE}
_SHOWN = 20
_REASONS = {"DESTINATION_TYPECAST_ERROR", "DESTINATION_FIELD_SIZE_LIMITATION"}


class _Cell(NamedTuple):
    """`change` is what there must be an entry for; `fault` says what is wrong, whatever the entries say."""

    path: str
    change: str | None = None
    fault: str | None = None


@dataclass
class Report:
    """One stream in one table. Every cell is equal, accounted for, or wrong."""

    stream: str
    rows: int = 0
    equal: int = 0
    accounted: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def cells(self) -> int:
        return self.equal + self.accounted.total() + len(self.wrong)

    def __str__(self) -> str:
        accounted = ", ".join(f"{reason}: {count}" for reason, count in sorted(self.accounted.items())) or "0"
        line = f"| {self.stream} | {self.rows} | {self.cells} | {self.equal} | {accounted} | {len(self.wrong)} |"
        return "\n".join([line, *(f"|   {fault} |" for fault in self.wrong[:_SHOWN])])


HEAD = "| stream | rows | cells | equal | accounted for | wrong |\n|---|---|---|---|---|---|"


def compare(planned: PlannedStream, sent: Sequence[Sent], table: pa.Table, *, in_order_of: str = RAW_ID) -> Report:
    """All rows of a table that one sync filled, against all records that it got of the stream. Their names count the
    rows of a file as they came; of several files, another column has to tell."""
    columns = table_columns(planned)
    report = Report(str(planned.id))
    rows = sorted(table.to_pylist(), key=lambda row: str(row[in_order_of]))
    wanted = _survivors(planned, sent) if planned.write in _KEYED else list(sent)
    if len(rows) != len(wanted):
        report.wrong.append(f"{len(wanted)} rows were to land, and {len(rows)} did")
    report.rows = len(rows)
    for name, kind in ((each.name, each.type) for each in columns.schema):
        if name not in table.schema.names or not _is_same(table.schema.field(name).type, kind):
            report.wrong.append(f"column {name} is not {kind}")
    if columns.is_schemaless:
        wanted = [record._replace(data={WHOLE_RECORD: record.data}) for record in wanted]
    for number, (record, row) in enumerate(zip(wanted, rows, strict=False)):
        _compare_row(report, columns, record, row, f"row {number}")
    return report


def _compare_row(report: Report, columns: Columns, sent: Sent, row: Mapping[str, Any], place: str) -> None:
    entries = Counter((entry["field"], entry["change"], entry["reason"]) for entry in row[META]["changes"])
    entries.subtract(sent.changes)
    report.ignored.update(sent.data.keys() - {column.path[0] for column in columns.parsed_columns})
    at = _Cell(EXTRACTED_AT, None if row[EXTRACTED_AT] == sent.emitted_at else NULLED)
    for cell in (at, *_row_cells(columns, sent, row, report.ignored)):
        if cell.fault is None and cell.change is None:
            report.equal += 1
            continue
        entry = next((key for key in entries if key[:2] == (cell.path, cell.change) and entries[key] > 0), None)
        if cell.fault is None and entry is not None and entry[2] in _REASONS:
            entries[entry] -= 1
            report.accounted[entry[2]] += 1
        else:
            report.wrong.append(f"{place}, {cell.path}: {cell.fault or f'it is {cell.change}, and no entry says so'}")
    report.wrong += [f"{place}, {key[0]}: {key[1]} says its entry, and it is not" for key in (+entries)]
    report.wrong += [f"{place}, {key[0]}: the source's own entry is gone" for key in (-entries)]


def _row_cells(columns: Columns, sent: Sent, row: Mapping[str, Any], ignored: Counter[str]) -> Iterator[_Cell]:
    for column in columns.parsed_columns:
        name = column.path[0]
        yield from _cells(name, sent.data.get(name), row[column.name], column.type, ignored)


def _cells(path: str, sent: Any, landed: Any, kind: ValueType, ignored: Counter[str]) -> Iterator[_Cell]:
    if sent is None:
        yield _Cell(path, fault=None if landed is None else "nothing was sent")
    elif kind.depth or kind.kind is ValueKind.STRUCT:
        if not isinstance(sent, list if kind.depth else dict):
            yield _Cell(path, NULLED, None if landed is None else "something else was sent")
        elif landed is None or (kind.depth and len(landed) != len(sent)):
            yield _Cell(path, fault="it is not whole")
        elif kind.depth:
            for position, (one, other) in enumerate(zip(sent, landed, strict=True)):
                yield from _cells(f"{path}.{position}", one, other, kind.element_type, ignored)
        else:
            sent = dict(sent)
            ignored.update(f"{path}.{name}" for name in sent.keys() - {member.source for member in kind.members})
            for member in kind.members:
                inner = f"{path}.{member.source}"
                yield from _cells(inner, sent.get(member.source), landed[member.name], member.type, ignored)
    else:
        yield _leaf(path, sent, landed, kind.kind)


def _leaf(path: str, sent: Any, landed: Any, kind: ValueKind) -> _Cell:
    value, change = expected(sent, kind)
    is_json = kind is ValueKind.JSON or (kind is ValueKind.STRING and not isinstance(value, str))
    found = parsed(landed) if is_json and landed is not None else landed
    if not alike(found, value):
        return _Cell(path, fault="it is null" if landed is None else "it is another value")
    return _Cell(path, change)


def _survivors(planned: PlannedStream, sent: Sequence[Sent]) -> list[Sent]:
    """Of each key the latest record, by cursor, then by when it was emitted, then by arrival; where it then stands."""
    kinds = {column.path: column.type.kind for column in table_columns(planned).all}
    latest: dict[tuple[str, ...], tuple[Any, int]] = {}
    for number, record in enumerate(sent):
        key = tuple(str(_landed_at(record.data, path, kinds)) for path in planned.primary_key)
        if all(part == "None" for part in key):
            continue
        cursor = _landed_at(record.data, planned.cursor, kinds) if planned.cursor else None
        rank = (cursor is not None, cursor, record.emitted_at)
        if key not in latest or _is_not_older(rank, latest[key][0]):
            latest[key] = (rank, number)
    return [sent[number] for number in sorted(number for _, number in latest.values())]


def _is_not_older(rank: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    if rank[0] != other[0]:
        return bool(rank[0])
    return bool(rank[1:] >= other[1:] if rank[0] else rank[2] >= other[2])


def _landed_at(data: Any, path: FieldPath, kinds: Mapping[FieldPath, ValueKind]) -> Any:
    found = data
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    return None if found is None else expected(found, kinds.get(path, ValueKind.STRING)).value


def _is_same(one: pa.DataType, other: pa.DataType) -> bool:
    """Whatever the fields of lists are called, and whether they may be null."""
    if pa.types.is_list(one) and pa.types.is_list(other):
        return _is_same(one.value_type, other.value_type)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return [each.name for each in one] == [each.name for each in other] and all(
            _is_same(each.type, its.type) for each, its in zip(one, other, strict=True)
        )
    return bool(one.equals(other))
