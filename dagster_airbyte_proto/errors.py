"""One tree of errors. The class says who can act on it.

- Every error is built from facts: the work that failed (`doing`), the finding (`found`) and a way out (`remedy`). The
  message is made of them, so nobody needs to parse it: catch by class, read fields.
- Messages never carry secrets or the contents of records. Azure's store may have its credentials in each URL, as a
  signature, and pyarrow writes URLs into its errors: signatures are masked here, whoever's they are.
- Errors cross process borders (executors, worker processes), so every error pickles with all its fields.
"""

import re
from typing import Any

_SIGNATURE = re.compile(r"(?<=[?&]sig=)[^&'\"\s]+")


class ProtoError(Exception):
    """The root of all errors. If it is `retryable`, the same call may succeed later with nothing changed."""

    retryable = False

    def __init__(self, doing: str, found: str, *, remedy: str = "", stream: str | None = None) -> None:
        self.doing = doing
        self.found = found = _without_signatures(found)
        self.remedy = remedy
        self.stream = stream
        super().__init__(doing, found, remedy, stream)

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own way calls the class with `args`, by position. `remedy` and `stream` are keyword-only, and
        # subclasses take more of these, so the object is made without __init__ and its fields are set afterwards.
        return _unpickled, (type(self), self.args), dict(vars(self))

    def __str__(self) -> str:
        where = f"{self.doing} (stream {self.stream})" if self.stream else self.doing
        return f"{where}: {self.found}" + (f"\n{self.remedy}" if self.remedy else "")


class ConfigError(ProtoError):
    """A connection file, a setting or an argument is wrong. The user can fix it."""


class ConnectorError(ProtoError):
    """The connector failed, or reported a failure. `retryable` follows its report.

    `pauses_seconds` are those before each further try, if the connector says more than that it may be tried.
    """

    pauses_seconds: tuple[float, ...] = ()

    def __init__(
        self, doing: str, found: str, *, remedy: str = "", stream: str | None = None, retryable: bool = False
    ) -> None:
        super().__init__(doing, found, remedy=remedy, stream=stream)
        self.retryable = retryable


class ProtocolViolation(ConnectorError):
    """The connector's output breaks the protocol. The connector's author can fix it."""


class TooManyRejected(ConnectorError):
    """More rows of a delivery were rejected than its user allows. The user can mend them, or allow more."""


class SecretStoreError(ProtoError):
    """A store of secrets (Vault, AWS Secrets Manager) does not answer. Nothing has begun, so running again is safe."""

    retryable = True


class StagingError(ProtoError):
    """The staging disk is full, read-only or gone. Nothing was announced, so running again is safe."""

    retryable = True


class TableError(ProtoError):
    """A table's schema, catalog or warehouse refuses a change. Its rows did not land and its state did not move."""


class SchemaRefused(TableError):
    """A table cannot take its stream's columns.

    Each of `mismatches` is a column, its type in the table (empty if the table lacks it) and its type in the stream.
    """

    def __init__(
        self, doing: str, found: str, *, remedy: str = "", mismatches: tuple[tuple[str, str, str], ...] = ()
    ) -> None:
        super().__init__(doing, found, remedy=remedy)
        self.mismatches = mismatches


class TransformError(ProtoError):
    """A transform failed for rows of a stream. None of them landed. The author of the transform can fix it."""

    def __init__(
        self, doing: str, found: str, *, remedy: str = "", stream: str | None = None, retryable: bool = False
    ) -> None:
        super().__init__(doing, found, remedy=remedy, stream=stream)
        self.retryable = retryable


class StateConflict(ProtoError):
    """Another run holds the connection, or took it over. This run must not write any more."""


class StateUnavailable(ProtoError):
    """The state store does not answer: it is locked, full or unreachable. No state has moved."""

    retryable = True


class CommitUnknown(ProtoError):
    """A commit was requested, and its outcome is unknown. Recover before any retry."""

    retryable = True


class LandedUnseen(CommitUnknown):
    """A load is in its table's log, and readers do not see it yet. It must not be committed again."""


class Cancelled(ProtoError):
    """Somebody cancelled the run before it was done. Nothing is wrong, and the next run goes on from there."""

    retryable = True


class DeliveryCancelled(TableError, Cancelled):
    """Somebody cancelled a relay while its destination took a load. The state of the load did not move, and the next
    sync reads its rows again."""


class TransformCancelled(TransformError, Cancelled):
    """Somebody cancelled a run while a connector transformed rows. None of these landed, and the next run goes on from
    there."""


class InternalError(ProtoError):
    """A bug in this package. Please report it with the output of `airbyte-proto version`."""


REFRESH_COMPONENTS = "dg utils refresh-defs-state"
"""The command that renews the catalogs of Dagster components, which keep their own."""


def outdated_catalog_remedy(connection: str = "C") -> str:
    """The remedy where the saved catalog lacks what the source has by now, or there is none."""
    return f"Run `airbyte-proto discover {connection} --save`; of a component `{REFRESH_COMPONENTS}`."


def _unpickled(error: type[ProtoError], args: tuple[Any, ...]) -> ProtoError:
    made = error.__new__(error)
    made.args = args
    return made


def mask_signatures(error: BaseException) -> None:
    """Masks the signatures of URLs in an error and in those that led to it, in place: before a stack trace is shown."""
    shown: BaseException | None = error
    while shown is not None:
        shown.args = tuple(_without_signatures(each) if isinstance(each, str) else each for each in shown.args)
        if isinstance(shown, OSError) and shown.strerror:
            shown.strerror = _without_signatures(shown.strerror)
        shown = shown.__cause__ or shown.__context__


def _without_signatures(text: str) -> str:
    return _SIGNATURE.sub("***", text) if "sig=" in text else text
