"""Takes in the output of a destination that gets rows: acknowledgements, errors, logs, and a config that it rewrote."""

from collections.abc import Iterator, Mapping

from dagster_airbyte_proto.model import StreamId
from dagster_airbyte_proto.protocols.acknowledgements import Acknowledgements
from dagster_airbyte_proto.protocols.destination import Echo, RejectedRecord, StreamResult
from dagster_airbyte_proto.protocols.events import ConfigEvent, RecordLine
from dagster_airbyte_proto.sync.connector.destination import ConnectorOutput, Destination
from dagster_airbyte_proto.sync.push.content.rejected_records import RejectedRecords


class DestinationOutput:
    """The output of one process of a destination. `result` is its last word on its rows, once it `awaits_result`: they
    have ended, and a result before that is none of them. `has_records` says that it wrote records itself, `strangers`
    which states it sent that were never sent to it."""

    def __init__(
        self,
        destination: Destination,
        stream: StreamId,
        acknowledgements: Acknowledgements,
        rejected: RejectedRecords,
    ) -> None:
        self._destination, self._stream, self._rejected = destination, stream, rejected
        self._acknowledgements = acknowledgements
        self._output = ConnectorOutput(destination, destination.protocol.reply, stream)
        self.result: StreamResult | None = None
        self.awaits_result = self.has_records = False
        self._early_results = 0
        self.strangers = ""
        self.kept: Mapping[str, Mapping[str, str]] = {}

    @property
    def error(self) -> str | None:
        """The first error that it reported."""
        return self._output.error

    @property
    def is_transient(self) -> bool:
        return self._output.is_transient

    @property
    def is_final(self) -> bool:
        return self._output.is_final

    @property
    def pauses_seconds(self) -> tuple[float, ...]:
        return self._output.pauses_seconds

    @property
    def has_counted(self) -> bool:
        """True if its result says how many rows it received."""
        return self.result is not None and self.result.received is not None

    def feed(self, chunk: bytes) -> None:
        """Takes in a piece of output. Raises ProtocolViolation for a line without an end."""
        self._take(self._output.feed(chunk))

    def finish(self) -> None:
        """Takes in the last line, if it has no end. Reports what states proved nothing."""
        self._take(self._output.finish())
        acknowledgements, log = self._acknowledgements, self._destination.log
        if acknowledgements.strangers:
            self.strangers = f"{acknowledgements.strangers:,} states came back that were never sent"
            if acknowledgements.globals:
                self.strangers += f", {acknowledgements.globals:,} of them GLOBAL ones: each stream has its own"
            self._destination.warn(f"{self.strangers} (stream {self._stream}); they prove no row")
        if acknowledgements.repeats:
            log.write("DEBUG", f"{acknowledgements.repeats:,} states came back again")
        acknowledgements.strangers = acknowledgements.globals = acknowledgements.repeats = 0
        if self._early_results:
            log.write("WARN", f"{self._early_results:,} results came before the end of the rows: they prove none")
        self._early_results = 0

    def _take(self, events: Iterator[object]) -> None:
        for found in events:
            if isinstance(found, Echo):
                # What it keeps goes with the rows that it proves.
                is_proof = self._acknowledgements.received(found)
                if found.kept and (is_proof or found.is_end):
                    self.kept = found.kept
            elif isinstance(found, StreamResult) and self.awaits_result:
                self.result = found
            elif isinstance(found, StreamResult):
                self._early_results += 1
            elif isinstance(found, RejectedRecord):
                self._rejected.add(found.record, self._destination.mask.text(found.reason))
            elif isinstance(found, ConfigEvent):
                self._destination.try_rewritten_config(found)
            elif isinstance(found, RecordLine):
                self.has_records = True
            else:
                self._output.skip(type(found).__name__)
