"""The evidence on which rules are judged: what one connector answered, sent and left in some runs. Values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from dagster_airbyte_proto.certification.reads.read_evidence import ReadEvidence
from dagster_airbyte_proto.certification.reads.resumption import Continuation
from dagster_airbyte_proto.certification.watching.watched_launcher import ConnectorRun
from dagster_airbyte_proto.errors import ConnectorError
from dagster_airbyte_proto.masking import Mask
from dagster_airbyte_proto.model import Catalog
from dagster_airbyte_proto.protocols.events import CheckEvent, SpecEvent
from dagster_airbyte_proto.protocols.state_codec import StateCodec

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Reply(Generic[Answer]):
    """The reply to one request: an answer or an error, and the runs of the connector that it took."""

    answer: Answer | None
    error: ConnectorError | None = None
    runs: tuple[ConnectorRun, ...] = ()

    @property
    def required(self) -> Answer:
        """The answer. Raises the error if there is none."""
        if self.answer is None:
            raise self.error or ConnectorError("asking the connector", "no request was made")
        return self.answer


class BadConfig(NamedTuple):
    """A config that the connector should refuse. It must, if its own spec does (`is_certain`).

    `description` names what is wrong with it, without the value; `path` is where that is.
    """

    description: str
    path: tuple[str, ...]
    config: Mapping[str, Any]
    is_certain: bool


class BadCheck(NamedTuple):
    """A check of a bad config."""

    bad: BadConfig
    reply: Reply[CheckEvent]


class Step(NamedTuple):
    """A run of the connector, and the purpose that it served."""

    purpose: str
    run: ConnectorRun


class Leak(NamedTuple):
    """A secret of the config in the connector's output. `text` is masked."""

    where: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that is known of any connector.

    `connector` names its exact version; `mask` hides the secrets of its config; `seconds` is the time that all took. A
    replay gives the recorded answers, whatever its config and states.
    """

    connector: str
    mask: Mask
    has_secrets: bool
    spec: Reply[SpecEvent]
    check: Reply[CheckEvent] = Reply(None)
    bad_checks: Sequence[BadCheck] = ()
    leaks: Sequence[Leak] = ()
    steps: Sequence[Step] = ()
    is_replay: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SourceEvidence(Evidence):
    """All that is known of one source."""

    states: StateCodec
    discover: Reply[Catalog] = Reply(None)
    second_discover: Reply[Catalog] = Reply(None)
    first_read: Reply[ReadEvidence] = Reply(None)
    second_read: Reply[ReadEvidence] = Reply(None)
    resumed: Reply[Continuation] = Reply(None)
    resumed_at_end: Reply[Continuation] = Reply(None)
    cancelled_read: Reply[ReadEvidence] = Reply(None)
    cancelled: Reply[Continuation] = Reply(None)
