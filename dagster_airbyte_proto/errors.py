"""One tree of errors. The class says who can act on it.

Every error is built from facts: what was being done (`doing`), what was found (`found`), and what to
try (`remedy`). The message is made of them, so nobody needs to parse it: catch by class, read fields.
Messages never carry secrets or the contents of records.
"""


class ProtoError(Exception):
    """The root. `retryable` says whether the same call may succeed later with nothing changed."""

    retryable = False

    def __init__(self, doing: str, found: str, *, remedy: str = "", stream: str | None = None) -> None:
        self.doing = doing
        self.found = found
        self.remedy = remedy
        self.stream = stream
        super().__init__(doing, found, remedy, stream)

    def __str__(self) -> str:
        where = f"{self.doing} (stream {self.stream})" if self.stream else self.doing
        return f"{where}: {self.found}" + (f"\n{self.remedy}" if self.remedy else "")


class ConfigError(ProtoError):
    """The user can mend it: a connection file, a setting, an argument."""


class ConnectorError(ProtoError):
    """The connector failed, or said that it did. `retryable` follows what it said."""

    def __init__(
        self, doing: str, found: str, *, remedy: str = "", stream: str | None = None, retryable: bool = False
    ) -> None:
        super().__init__(doing, found, remedy=remedy, stream=stream)
        self.retryable = retryable


class ProtocolViolation(ConnectorError):
    """The connector's bytes break the protocol; its author can mend it."""


class StagingError(ProtoError):
    """The disk: full, read-only, gone. Nothing was announced; running again is safe."""

    retryable = True


class TableError(ProtoError):
    """A table refuses: its schema, its catalog, its warehouse. Its rows are not in, its state stands."""


class SchemaRefused(TableError):
    """A table and its stream do not go together. Each of `misfits` is a column, its type in the table (empty where the
    table has none) and in the stream."""

    def __init__(
        self, doing: str, found: str, *, remedy: str = "", misfits: tuple[tuple[str, str, str], ...] = ()
    ) -> None:
        super().__init__(doing, found, remedy=remedy)
        self.misfits = misfits


class StateConflict(ProtoError):
    """Another run holds the connection, or took it over. This run must not write any more."""


class StateUnavailable(ProtoError):
    """The state store does not answer: locked, full, unreachable. Nothing has moved."""

    retryable = True


class CommitUnknown(ProtoError):
    """A commit was asked for and nobody knows whether it is in. Recover before any retry."""

    retryable = True


class InternalError(ProtoError):
    """Our own mistake. Please report it with the output of `airbyte-proto version`."""
