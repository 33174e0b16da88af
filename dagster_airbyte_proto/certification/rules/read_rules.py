"""Judges an uninterrupted read: its end, its lines, and its records."""

from dagster_airbyte_proto.certification.evidence import SourceEvidence
from dagster_airbyte_proto.certification.reads.read_evidence import OddLines, ReadEvidence
from dagster_airbyte_proto.certification.rule import Outcome, Ruling, Sample, cannot_tell, does_not_apply, holds
from dagster_airbyte_proto.plurals import counted
from dagster_airbyte_proto.protocols.events import StreamStatus


def read_ends(evidence: SourceEvidence) -> Ruling:
    read = evidence.first_read.required
    if read.error is not None:
        return Ruling(Outcome.BROKEN, f"{read.error.found} ({read.run.seconds:.0f} s)", _samples(read.errors))
    if not read.is_whole:
        return Ruling(Outcome.BROKEN, f"the connector {read.run.how_it_ended}", _end_samples(read))
    if read.errors.count:
        found = f"the connector reported {counted(read.errors.count, 'error')} and exited with code 0"
        return Ruling(Outcome.BROKEN, found, _samples(read.errors), remedy="Exit with a code other than 0.")
    return holds(f"{counted(read.rows, 'record')} in {read.run.seconds:.1f} s, and exit code 0")


def lines_are_messages(evidence: SourceEvidence) -> Ruling:
    """Hosts of Airbyte log a line that is no message; a message that cannot be read is lost."""
    return _lines_ruling(evidence, Outcome.WARNING)


def every_line_is_a_message(evidence: SourceEvidence) -> Ruling:
    return _lines_ruling(evidence, Outcome.BROKEN)


def _lines_ruling(evidence: SourceEvidence, of_plain_lines: Outcome) -> Ruling:
    read = evidence.first_read.required
    if read.unreadable.count:
        found = f"{counted(read.unreadable.count, 'message')} cannot be read"
        return Ruling(Outcome.BROKEN, found, _samples(read.unreadable))
    if read.plain.count:
        found = f"no messages on stdout: {counted(read.plain.count, 'line')}"
        return Ruling(of_plain_lines, found, _samples(read.plain), remedy="Log to stderr, or in LOG messages.")
    return holds("every line of stdout is a message")


def records_are_declared(evidence: SourceEvidence) -> Ruling:
    read = evidence.first_read.required
    if read.undeclared.count:
        found = f"of streams that were not requested: {counted(read.undeclared.count, 'record')}"
        return Ruling(Outcome.BROKEN, found, _samples(read.undeclared))
    if not read.rows:
        return cannot_tell("no record came")
    return holds(f"{counted(read.rows, 'record')} of {counted(_streams(read), 'stream')}")


def records_fit_their_schema(evidence: SourceEvidence) -> Ruling:
    read = evidence.first_read.required
    if read.batches:
        return cannot_tell(f"{read.batches} batches of records are in files")
    return _fit_ruling(read, "value")


def batches_fit_their_schema(evidence: SourceEvidence) -> Ruling:
    """Of a batch with a column that does not fit, the values are not counted."""
    return _fit_ruling(evidence.first_read.required, "column")


def _fit_ruling(read: ReadEvidence, misfit: str) -> Ruling:
    if not read.rows:
        return cannot_tell("no record came")
    misfits = [
        (f"{stream}: {fault}", odd)
        for stream, records in read.streams.items()
        for fault, odd in records.misfits.items()
    ]
    if not misfits:
        return holds(f"{counted(read.rows - read.without_schema.count, 'record')} fit the schema of their stream")
    misfits.sort(key=lambda each: -each[1].count)
    values = sum(odd.count for _, odd in misfits)
    # One sample of each fault says more than all samples of the first.
    samples = tuple(
        Sample(f"line {odd.first[0].line} and {odd.count - 1} more" if odd.count > 1 else f"line {odd.first[0].line}",
               f"{fault}; {odd.first[0].text}")
        for fault, odd in misfits
    )  # fmt: skip
    return Ruling(
        Outcome.BROKEN,
        f"not as the schema says: {counted(values, misfit)}, in {counted(len(misfits), 'way')}",
        samples,
    )


def keys_are_there(evidence: SourceEvidence) -> Ruling:
    read = evidence.first_read.required
    with_keys = [records for records in read.streams.values() if records.keys]
    if not with_keys:
        return does_not_apply("no stream with a primary key had records")
    missing = sum(records.null_keys.count for records in with_keys)
    if missing:
        samples = tuple(sample for records in with_keys for sample in _samples(records.null_keys))
        return Ruling(Outcome.BROKEN, f"without a part of the primary key: {counted(missing, 'record')}", samples)
    return holds(f"every record of {counted(len(with_keys), 'stream')} has its primary key")


def streams_are_complete(evidence: SourceEvidence) -> Ruling:
    read = evidence.first_read.required
    if not read.statuses:
        return does_not_apply("the connector sends no stream statuses")
    incomplete = [stream for stream, status in read.statuses.items() if status is StreamStatus.INCOMPLETE]
    open_ended = [
        planned.id for planned in read.requested if read.statuses.get(planned.id) is not StreamStatus.COMPLETE
    ]
    if incomplete and read.is_whole:
        found = f"exit code 0, and {', '.join(map(str, incomplete))} INCOMPLETE"
        return Ruling(Outcome.BROKEN, found, _samples(read.errors))
    if open_ended:
        return Ruling(Outcome.BROKEN, f"no COMPLETE for {', '.join(map(str, open_ended))}", _samples(read.errors))
    return holds(f"{counted(len(read.requested), 'stream')} reported COMPLETE")


def schemas_come_first(evidence: SourceEvidence) -> Ruling:
    read = evidence.first_read.required
    if read.without_schema.count:
        found = f"{counted(read.without_schema.count, 'record')} came before the SCHEMA of their stream"
        return Ruling(Outcome.WARNING, found, _samples(read.without_schema))
    return holds("a SCHEMA came before the first record of each stream") if read.rows else cannot_tell("no record came")


def _samples(odd: OddLines) -> tuple[Sample, ...]:
    return tuple(Sample(f"line {each.line}", each.text) for each in odd.first)


def _end_samples(read: ReadEvidence) -> tuple[Sample, ...]:
    stderr = read.run.report.stderr_tail if read.run.report else ()
    return _samples(read.errors) or tuple(Sample("end of stderr", line) for line in stderr[-3:])


def _streams(read: ReadEvidence) -> int:
    return sum(1 for records in read.streams.values() if records.contents)
