"""Errors of Rapidbyte, `connector-error` in its WIT: their fields, our error for each, and when to try again.

| category | who can act | our kind |
|---|---|---|
| config, auth, permission | the user | a config error: trying again changes nothing |
| rate-limit, transient-network, transient-db | nobody: time | transient, retryable if it says so |
| data, schema, internal, frame | the connector's author | an error of the connector, retryable if it says so |

A call is tried again only if its error is both `retryable` and `safe-to-retry`, at most three times in all, and never
after a commit whose outcome may be that it happened.

The scope is for whoever reads the message: the protocol names three and asks for nothing. A call that ended with an
error has failed as a whole, also for one record: the ones behind that were not tried.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from dagster_airbyte_proto.protocols.events import FailureKind

MAX_TRIES = 3
_MAX_PAUSE_SECONDS = 60.0


class ErrorCategory(StrEnum):
    CONFIG = "config"
    AUTH = "auth"
    PERMISSION = "permission"
    RATE_LIMIT = "rate-limit"
    TRANSIENT_NETWORK = "transient-network"
    TRANSIENT_DB = "transient-db"
    DATA = "data"
    SCHEMA = "schema"
    INTERNAL = "internal"
    FRAME = "frame"


class ErrorScope(StrEnum):
    PER_STREAM = "per-stream"
    PER_BATCH = "per-batch"
    PER_RECORD = "per-record"


class BackoffClass(StrEnum):
    FAST = "fast"
    NORMAL = "normal"
    SLOW = "slow"


class ReportedCommit(StrEnum):
    """Where a destination stood when it failed (`commit-state`)."""

    BEFORE_COMMIT = "before-commit"
    AFTER_COMMIT_UNKNOWN = "after-commit-unknown"
    AFTER_COMMIT_CONFIRMED = "after-commit-confirmed"


_BASE_SECONDS = MappingProxyType({BackoffClass.FAST: 0.1, BackoffClass.NORMAL: 1.0, BackoffClass.SLOW: 5.0})
_SCOPES = MappingProxyType({ErrorScope.PER_BATCH: "of a batch", ErrorScope.PER_RECORD: "of a record"})
_CONFIG = (ErrorCategory.CONFIG, ErrorCategory.AUTH, ErrorCategory.PERMISSION)
_TRANSIENT = (ErrorCategory.RATE_LIMIT, ErrorCategory.TRANSIENT_NETWORK, ErrorCategory.TRANSIENT_DB)


class ReportedError(NamedTuple):
    """An error with all that Rapidbyte says of one, from a connector or from one of our host functions."""

    category: ErrorCategory
    code: str
    message: str
    scope: ErrorScope = ErrorScope.PER_STREAM
    is_retryable: bool = False
    retry_after_milliseconds: int | None = None
    backoff: BackoffClass = BackoffClass.NORMAL
    is_safe_to_retry: bool = False
    commit_outcome: ReportedCommit | None = None
    details_json: str | None = None

    @classmethod
    def from_wit(cls, fields: Mapping[str, Any]) -> "ReportedError":
        outcome = fields["commit-state"]
        return cls(
            category=ErrorCategory(fields["category"]),
            code=fields["code"],
            message=fields["message"],
            scope=ErrorScope(fields["scope"]),
            is_retryable=fields["retryable"],
            retry_after_milliseconds=fields["retry-after-ms"],
            backoff=BackoffClass(fields["backoff-class"]),
            is_safe_to_retry=fields["safe-to-retry"],
            commit_outcome=None if outcome is None else ReportedCommit(outcome),
            details_json=fields["details-json"],
        )

    def to_wit(self) -> Mapping[str, Any]:
        return {
            "category": self.category.value,
            "scope": self.scope.value,
            "code": self.code,
            "message": self.message,
            "retryable": self.is_retryable,
            "retry-after-ms": self.retry_after_milliseconds,
            "backoff-class": self.backoff.value,
            "safe-to-retry": self.is_safe_to_retry,
            "commit-state": None if self.commit_outcome is None else self.commit_outcome.value,
            "details-json": self.details_json,
        }

    def __str__(self) -> str:
        return self.described()

    def described(self, *more: str) -> str:
        """The error for people, with its scope, where it says one, and more that is known of it."""
        said = ", ".join(each for each in (_SCOPES.get(self.scope, ""), *more) if each)
        return f"{self.category}/{self.code}: {self.message}" + (f" ({said})" if said else "")

    @property
    def kind(self) -> FailureKind:
        """The kind of failure that it is to us."""
        if self.category in _CONFIG:
            return FailureKind.CONFIG
        return FailureKind.TRANSIENT if self.category in _TRANSIENT or self.is_retryable else FailureKind.SYSTEM

    def pauses(self) -> tuple[float, ...]:
        """The pauses before each further try; empty if there must be none."""
        found = (self.pause_seconds(tries) for tries in range(1, MAX_TRIES))
        return tuple(each for each in found if each is not None)

    def pause_seconds(self, tries: int) -> float | None:
        """The pause before the call is tried again, after so many tries; None if it must not be."""
        is_committed = self.commit_outcome not in (None, ReportedCommit.BEFORE_COMMIT)
        if tries >= MAX_TRIES or is_committed or not (self.is_retryable and self.is_safe_to_retry):
            return None
        if self.retry_after_milliseconds is not None:
            return min(self.retry_after_milliseconds / 1000, _MAX_PAUSE_SECONDS)
        doubled: float = _BASE_SECONDS[self.backoff] * 2.0 ** (tries - 1)
        return min(doubled, _MAX_PAUSE_SECONDS)
