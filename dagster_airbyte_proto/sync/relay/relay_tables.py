"""The streams of a destination in the place of tables: to commit a part is to deliver it.

- One part is delivered at a time, by processes of its own: destinations lock the file or the table that they write.
- A part that the destination does not take fails its stream. Where rows may be at the destination and must not be sent
  twice, the load stays announced instead, and a person decides (`--retry-unknown`, `loads resolve`).
- The staged files go once all their rows are acknowledged. Before that the store keeps the records that the
  destination or the source rejected, in the name of the load: so they are there before a state moves, and once, however
  often a load is gone on with.
- A load that sends rejected records again (`resend.py`) is delivered as any other. Its records are kept already: those
  that are acknowledged leave with the acknowledgement.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from dagster_airbyte_proto.atomic_files import write_atomically
from dagster_airbyte_proto.errors import (
    Cancelled,
    CommitUnknown,
    DeliveryCancelled,
    InternalError,
    ProtoError,
    StagingError,
    TableError,
)
from dagster_airbyte_proto.loads.load import CommittedRows, StagedRows
from dagster_airbyte_proto.loads.program_identity import relay_identity
from dagster_airbyte_proto.loads.push import Delivery
from dagster_airbyte_proto.loads.storage import LOCAL, folder_name
from dagster_airbyte_proto.loads.table import TableFit, TableSpec, TableTarget, Witness
from dagster_airbyte_proto.model import IDEMPOTENT, PushMode, TableName, WriteMode
from dagster_airbyte_proto.points import reach
from dagster_airbyte_proto.schema.columns import RecordForm, decoded_form
from dagster_airbyte_proto.sync.connector.destination_catalog import offered_operations
from dagster_airbyte_proto.sync.push.attempts import DeliveryAttempts, first_generation, generations
from dagster_airbyte_proto.sync.push.push_context import DeliveryContext
from dagster_airbyte_proto.sync.relay.kept_rejections import RejectionKeeping
from dagster_airbyte_proto.sync.relay.record_keys import replaced_by
from dagster_airbyte_proto.sync.relay.relay_plan import RelayedTo, RelayPlan, plan_of_part
from dagster_airbyte_proto.tables.abilities import Abilities

RELAY_ABILITIES = Abilities(
    "relay", modes=frozenset((WriteMode.APPEND, WriteMode.OVERWRITE)), has_slices=False, has_renames=False
)
_REJECTED = "refused by the destination, which does not say which row"
_KEPT_STILL = "Records that were not acknowledged are still kept: `sync --retry-rejected` sends them again."
_FORM_FILE = "record_form.json"


class RelayTables:
    """The TableWriter of one run of a relay. `folder` is for its staged files.

    With `retries_unknown` rows are sent again of which nobody knows whether the destination has them.
    """

    abilities = RELAY_ABILITIES
    storage = LOCAL

    def __init__(self, context: DeliveryContext, folder: Path, *, retries_unknown: bool) -> None:
        self._context, self._retries_unknown = context, retries_unknown
        self._folder = folder.absolute()
        self._keeping = RejectionKeeping(context.store, context.lease, context.destination.warn)
        self._of_earlier_runs: set[str] = set()
        self._one_at_a_time = threading.Lock()

    def prepare(self, spec: TableSpec) -> TableTarget:
        form = spec.record_form
        if form is None:
            raise InternalError(f"preparing stream {spec.name} of a relay", "nobody says which form its records have")
        folder = self._folder_of(spec.name)
        with _staging_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / _FORM_FILE, msgspec.json.encode(form))
        landed = {name: str(spec.schema.field(name).type) for name in form.columns}
        return TableTarget(
            spec.name,
            form.in_schema(spec.schema),
            str(folder),
            str(form.target.stream),
            fit=TableFit(landed=landed),
            table_id=relay_identity(self._context.connection.connector),
        )

    def commit(self, load_id: str, part: StagedRows) -> CommittedRows:
        with self._one_at_a_time:
            try:
                return self._deliver(load_id, part)
            except TableError as error:
                if part.resends:  # It is given up, and the store has its records.
                    remove_staged_files(part)
                    if load_id in self._of_earlier_runs:  # No report of this run has the error.
                        self._context.destination.warn(f"{part.stream}: {error}")
                raise

    def find_load(self, load_id: str, part: StagedRows) -> CommittedRows | None:
        self._of_earlier_runs.add(load_id)
        doing = f"looking for load {load_id} of connection {part.connection}"
        if not part.is_relayed:
            raise TableError(doing, "it was staged for a table, and the connection has a destination now (`to`)")
        delivery = self._delivery(load_id, part)
        if delivery is None:
            return None
        if part.rows and delivery.is_complete:
            return self._delivered(part, delivery, {}, was_there=True)
        if delivery.unknown and delivery.plan.mode not in IDEMPOTENT and not self._retries_unknown:
            self._try_keep_rejections(part, delivery)
            raise _unknown_error(doing, delivery, "an earlier run ended in the midst of it")
        return None

    def witness(self, name: TableName, connection: str) -> Witness:  # noqa: ARG002 - a destination cannot be asked
        return Witness(relay_identity(self._context.connection.connector), None, is_whole=False)

    def close(self) -> None:
        pass

    def _deliver(self, load_id: str, part: StagedRows) -> CommittedRows:
        context = self._context
        before = context.store.deliveries(part.connection, part.stream).get(part.stream)
        begun = before if before is not None and before.plan.plan_id == load_id else None
        first = first_generation(before) if begun is None else begun.plan.first_generation
        try:
            plan = self._plan(load_id, part, first)
            if begun is None:
                self._forget_replaced(plan)
        except StagingError as error:  # Its files are gone.
            raise self._failure(load_id, part, begun, error) from error
        if begun is None:
            context.store.seal_plan(context.lease, plan.plan)
            reach("push.sealed")
        destination = context.destination
        chosen = context.connection.options(part.stream)
        to = RelayedTo(
            destination.protocol,
            context.connection.checkpoint_rows,
            offered_operations(destination),
            chosen.options if chosen else {},
        )
        numbers = generations(first, begun.attempts if begun is not None else 0)
        attempts = DeliveryAttempts(context, plan.plan, lambda start: plan.parts(start, to, next(numbers)), LOCAL)
        attempts.run()
        delivery = self._delivery(load_id, part)
        if delivery is None:
            context.renewal.check()  # This run has slept, and the one that took over has ended the load.
            raise InternalError(f"delivering load {load_id}", "its plan is gone", stream=str(part.stream))
        if attempts.error is not None:
            failure = self._failure(load_id, part, delivery, attempts.error)
            if isinstance(failure, CommitUnknown):
                self._try_keep_rejections(part, delivery)
            raise failure
        return self._delivered(part, delivery, {_REJECTED: min(attempts.unnamed, part.rows)}, was_there=False)

    def _forget_replaced(self, plan: RelayPlan) -> None:
        """Forgets the rejected records of whose keys this plan has newer ones, before one of these is sent."""
        store, stream = self._context.store, plan.plan.stream
        if plan.plan.mode is PushMode.UPSERT and not plan.plan.resends:
            replaced = replaced_by(plan, store.kept_rejections(plan.plan.connection, stream))
            if replaced:
                store.forget_rejections(self._context.lease, replaced)

    def _plan(self, load_id: str, part: StagedRows, first: int) -> RelayPlan:
        found = plan_of_part(load_id, part, lambda: self._last_form(part.table))
        return found._replace(plan=msgspec.structs.replace(found.plan, first_generation=first))

    def _last_form(self, name: TableName) -> RecordForm:
        """The form for which the stream was prepared last: a part without rows has no file that tells it."""
        file = self._folder_of(name) / _FORM_FILE
        with _staging_errors(file):
            return decoded_form(file.read_bytes())

    def _delivery(self, load_id: str, part: StagedRows) -> Delivery | None:
        delivery = self._context.store.deliveries(part.connection, part.stream).get(part.stream)
        return delivery if delivery is not None and delivery.plan.plan_id == load_id else None

    def _failure(
        self, load_id: str, part: StagedRows, delivery: Delivery | None, error: ProtoError
    ) -> TableError | CommitUnknown:
        """The error of a part that was not delivered to its end."""
        doing = f"delivering load {load_id} of connection {part.connection}"
        found = self._context.destination.mask.text(str(error))
        # What a load sends again is kept, or it has left with its acknowledgement: only what is unknown needs a word.
        left = 0 if delivery is None else delivery.unknown if part.resends else delivery.announced
        if delivery is None or delivery.plan.mode in IDEMPOTENT or left == 0:
            if isinstance(error, Cancelled):
                return DeliveryCancelled(doing, error.found, stream=error.stream)
            remedy = _KEPT_STILL if part.resends else "The next sync reads its rows again."
            failed = TableError(doing, found, remedy=remedy, stream=error.stream)
            failed.retryable = error.retryable
            return failed
        return _unknown_error(doing, delivery, found)

    def _delivered(
        self, part: StagedRows, delivery: Delivery, rejected: Mapping[str, int], *, was_there: bool
    ) -> CommittedRows:
        """The result of a part that is delivered. Its files are needed no more."""
        reasons = dict(rejected)
        for reason, rows in self._keeping.keep(part, delivery.plan).items():
            reasons[reason] = reasons.get(reason, 0) + rows
        remove_staged_files(part)
        found = {reason: rows for reason, rows in reasons.items() if rows}
        return CommittedRows(part.stream, delivery.plan.plan_id, was_there, rejected=found)

    def _try_keep_rejections(self, part: StagedRows, delivery: Delivery) -> None:
        """Keeps them before a load is left to a person, who may end it: no run reads its files then."""
        try:
            self._keeping.keep(part, delivery.plan)
        except ProtoError as error:  # The load has an error of its own, which says what to do.
            self._context.destination.warn(f"{part.stream}: its rejected records could not be kept: {error}")

    def _folder_of(self, name: TableName) -> Path:
        return self._folder / folder_name(name.namespace) / folder_name(name.name)


def remove_staged_files(part: StagedRows) -> None:
    """Removes the files of a part that is delivered, or will not be."""
    for file in part.files:
        with suppress(OSError):  # What stays of them is an orphan, which the next run removes.
            Path(file.path).unlink(missing_ok=True)


def _unknown_error(doing: str, delivery: Delivery, found: str) -> CommitUnknown:
    """The error of a part that the destination may have taken further than it has acknowledged."""
    plan = delivery.plan
    lost = "they stay among the rejected records" if plan.resends else "the source sends all rows of the load again"
    return CommitUnknown(
        doing,
        f"{found}; {delivery.acknowledged:,} of {plan.rows:,} rows are acknowledged, and nobody knows of"
        f" {delivery.unknown:,} whether the destination has them",
        remedy=f"In mode {plan.mode} a row that is sent twice may be there twice. Look at the destination, then run"
        f" `airbyte-proto sync {plan.connection} --retry-unknown` (they are sent again),"
        f" `airbyte-proto loads resolve {plan.plan_id} --as landed` (all are there), or `--as lost` (none is there:"
        f" {lost}).",
        stream=str(plan.stream),
    )


@contextmanager
def _staging_errors(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = "Make room there, or make it writable; running again is safe."
        raise StagingError("staging a relay", f"{place}: {error.strerror or error}", remedy=remedy) from error
