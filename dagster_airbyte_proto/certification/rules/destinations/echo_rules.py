"""Judges the states that a destination sends back: they come, in order, unchanged, and what setting follows."""

from itertools import pairwise

from dagster_airbyte_proto.certification.rule import Outcome, Ruling, Sample, cannot_tell, does_not_apply, holds
from dagster_airbyte_proto.certification.writes.write_evidence import DestinationEvidence, ReceivedState, WriteEvidence

_EXIT = "Set `acknowledge: exit` in connections to it: then its exit code 0 counts for all rows of a process."


def checkpoints_come(evidence: DestinationEvidence) -> Ruling:
    """Of a component: its checkpoints say how many rows are safe, and its good end may prove the rest."""
    write = evidence.first.required
    if write.proved_rows < write.rows:
        found = f"its checkpoints prove {write.proved_rows} of {write.rows} rows"
        return Ruling(Outcome.BROKEN, found, remedy=f"Take a checkpoint after the last batch. {_EXIT}")
    return holds(f"they prove all {write.rows} rows, by {len(write.received)} words of the component")


def states_come_back(evidence: DestinationEvidence) -> Ruling:
    write = evidence.first.required
    if write.proved_rows == write.rows and write.received:
        return holds(f"{_times(write)}, {_form(write)}")
    if not write.received:
        found = f"none of {len(write.states)} states came back"
        return Ruling(Outcome.BROKEN, found, remedy=f"Send each state back when the rows before it are safe. {_EXIT}")
    found = f"the states that came back prove {write.proved_rows} of {write.rows} rows"
    return Ruling(Outcome.BROKEN, found, remedy="Write what is left, and send the last state back, before the end.")


def states_are_ours(evidence: DestinationEvidence) -> Ruling:
    write = evidence.first.required
    if not write.received:
        return does_not_apply("no state came back")
    strange = [each for each in write.received if each.rows not in write.states]
    if strange:
        samples = tuple(Sample(_where(each), "a state that it was never sent") for each in strange)
        return Ruling(Outcome.BROKEN, f"{len(strange)} of {len(write.received)} states are none that came in", samples)
    changed = [each for each in write.received if not each.is_same]
    if changed:
        samples = tuple(Sample(_where(each), f"the state after row {each.rows} has changed") for each in changed)
        return Ruling(Outcome.BROKEN, f"{len(changed)} of {len(write.received)} states have changed", samples)
    return holds(f"all {len(write.received)} came back as they were sent")


def states_are_in_order(evidence: DestinationEvidence) -> Ruling:
    write = evidence.first.required
    ours = [each for each in write.received if each.rows in write.states]
    if not ours:
        return does_not_apply("no state came back")
    back = [
        Sample(_where(each), f"the state after row {each.rows} came behind that after row {before.rows}")
        for before, each in pairwise(ours)
        if (each.rows or 0) < (before.rows or 0)
    ]
    if back:
        return Ruling(Outcome.BROKEN, "states went back", tuple(back))
    repeats = len(ours) - len({each.rows for each in ours})
    if repeats:
        return Ruling(Outcome.WARNING, f"{repeats} states came twice", remedy="Send each state back once.")
    return holds(f"{len(ours)} states, each behind the one before")


def states_count_rows(evidence: DestinationEvidence) -> Ruling:
    write = evidence.first.required
    counted = [each for each in write.received if each.records is not None and each.rows in write.states]
    if not write.received:
        return does_not_apply("no state came back")
    if not counted:
        place = evidence.objects[0] if evidence.objects else "the object of certify"
        return cannot_tell(
            f"no state has counts: rows that it drops would count as delivered. Look whether all {write.rows} rows are"
            f" in {place}",
            remedy="Count the records that are safe in `destinationStats.recordCount`.",
        )
    if write.miscounts:
        samples = tuple(
            Sample(_where(each), f"it says {each.records:.0f} records, and {rows} were sent")
            for each, rows in write.miscounts
        )
        return Ruling(Outcome.BROKEN, f"{len(samples)} of {len(counted)} states miscount", samples)
    return holds(f"{len(counted)} states agree with the rows before them")


def setting_fits(evidence: DestinationEvidence) -> Ruling:
    write = evidence.first.required
    if not write.ended_well:
        return cannot_tell("the write failed")
    proves = bool(write.received) and write.proved_rows == write.rows
    if proves and evidence.acknowledge == "state":
        return holds(f"`acknowledge: state`, the default, is right: {_times(write)}")
    if proves:
        found = "the connection says `acknowledge: exit`, and states come back"
        remedy = "Leave `acknowledge` out: then rows that are safe stay so when a push is cancelled or fails."
        return Ruling(Outcome.WARNING, found, remedy=remedy)
    if evidence.acknowledge == "exit":
        return holds("`acknowledge: exit` is needed: states do not come back")
    return Ruling(Outcome.WARNING, "with `acknowledge: state`, the default, no row counts as delivered", remedy=_EXIT)


def _times(write: WriteEvidence) -> str:
    """When the states came back."""
    early = {each.rows for each in write.received if each.is_open and each.rows in write.states}
    late = {each.rows for each in write.received if not each.is_open and each.rows in write.states} - early
    sent, back = len(write.states), len(early | late)
    count = f"{back} of {sent} states came back" if back < sent else f"all {sent} states came back"
    if not late:
        return f"{count}, while the input was open"
    return f"{count}, {'all' if not early else f'{len(late)} of them'} after the end of the input"


def _form(write: WriteEvidence) -> str:
    enveloped = sum(each.in_envelope for each in write.received)
    if enveloped == len(write.received):
        return "each in its message"
    return "bare" if not enveloped else "some in their message, some bare"


def _where(each: ReceivedState) -> str:
    return f"message {each.message} of stdout"
