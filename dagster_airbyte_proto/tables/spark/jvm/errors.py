"""Classifies failed calls into the JVM, and failed requests to a server of Spark Connect.

Only this module names Java's exception classes.
"""

import logging
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException, PySparkValueError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.logger import PySparkLogger

from dagster_airbyte_proto.tables.remote_sessions import SERVER

CALL_ERRORS = (Py4JError, CapturedException, PySparkValueError, OSError)
"""All that a call into the JVM raises: Java's exceptions in both forms that pyspark gives them, and a lost JVM.

Asking for a frame's schema reports a lost JVM as a type that cannot be parsed (PySparkValueError).
"""

REMOTE_ERRORS = (PySparkException, OSError)
"""All that a request to a server of Spark Connect raises, and what reading its files does."""

SESSION_ERRORS = (Py4JError, PySparkException, OSError)
"""All that a session of either kind raises."""

_CONFLICTS = {
    "org.apache.iceberg.exceptions.ValidationException",
    "org.apache.iceberg.exceptions.CommitFailedException",
}
_NO_ANSWERS = {
    "org.apache.iceberg.jdbc.UncheckedSQLException",
    "org.apache.iceberg.exceptions.RESTException",
    "org.apache.iceberg.exceptions.ServiceFailureException",
    "org.apache.iceberg.exceptions.ServiceUnavailableException",
}
# Spark's own names of errors. Over Connect their Java class is one of its internal ones.
_CONDITIONS = {
    "TABLE_OR_VIEW_NOT_FOUND": "org.apache.iceberg.exceptions.NoSuchTableException",
    "TABLE_OR_VIEW_ALREADY_EXISTS": "TableAlreadyExistsException",
    "PATH_NOT_FOUND": "java.io.FileNotFoundException",
}
_CAUSE = re.compile(r"^Caused by: (?P<name>[\w.$]+)(: (?P<message>.*))?$", re.MULTILINE)
_NOT_ALLOWED = {
    "org.apache.iceberg.exceptions.NotAuthorizedException",
    "org.apache.iceberg.exceptions.ForbiddenException",
}
# A token service says `invalid_client`, or as Polaris does `unauthorized_client`, of which Iceberg makes a bad request.
_REFUSED_REQUESTS = {*_NOT_ALLOWED, "org.apache.iceberg.exceptions.BadRequestException"}
# A JDBC driver puts its URL into messages, and a user may have written a password there.
_URL_SECRETS = re.compile(r"(jdbc:[^\s?;]*)[?;]\S*|(?<=//)[^\s/@]+@")
_MISSING_FILES = ("FileNotFoundException", "iceberg.exceptions.NotFoundException", "s3.model.NoSuchKeyException")
_DELTA_CONFLICT = re.compile(
    r"(io\.delta\.exceptions|org\.apache\.spark\.sql\.delta)\.(Concurrent|Metadata|Protocol)\w+Exception"
)


class Failure(Enum):
    """The meaning of a failed call."""

    CONFLICT = "somebody else changed the table since we looked"
    UNKNOWN = "it may have happened, or not"
    NO_ANSWER = "the catalog's database or server broke off: it may have happened, or not"
    NOT_ALLOWED = "the catalog's server refused the credentials"
    MISSING_TABLE = "there is no such table"
    EXISTS = "it exists already"
    MISSING_FILE = "a file is missing"
    REFUSED = "it did not happen"


NO_OUTCOME = (Failure.UNKNOWN, Failure.NO_ANSWER)
"""A commit that failed so may still happen: a server may be working on it."""


def failure_of(error: BaseException) -> Failure:
    """Classifies the error of a failed call.

    UNKNOWN for a JVM that no longer answers: it may have finished the call.
    """
    causes = list(_causes(error))
    if not causes:
        return Failure.UNKNOWN
    outer = causes[0][0]
    if outer == "org.apache.iceberg.exceptions.CommitStateUnknownException":
        return Failure.UNKNOWN
    if outer in _CONFLICTS or _DELTA_CONFLICT.fullmatch(outer):
        return Failure.CONFLICT
    if outer in _NO_ANSWERS:
        return Failure.NO_ANSWER
    if outer in _NOT_ALLOWED:
        return Failure.NOT_ALLOWED
    if outer == "org.apache.iceberg.exceptions.NoSuchTableException":
        return Failure.MISSING_TABLE
    # Iceberg's, Spark's for namespaces and for tables, and Delta's.
    if outer.endswith("AlreadyExistsException") or _condition(error) == "DELTA_TABLE_ALREADY_EXISTS":
        return Failure.EXISTS
    return Failure.MISSING_FILE if any(name.endswith(_MISSING_FILES) for name, _ in causes) else Failure.REFUSED


def is_conflict(error: BaseException) -> bool:
    """Returns whether another writer changed the table meanwhile.

    Iceberg's Spark actions wrap the commit's exception.
    """
    return any(name in _CONFLICTS for name, _ in _causes(error))


def refuses_client(error: BaseException) -> bool:
    """Returns whether opening a catalog failed because its server refused the client, its scope or its request."""
    return any(name in _REFUSED_REQUESTS for name, _ in _causes(error))


def lacks_table(error: BaseException) -> bool:
    """Returns whether the call failed because a table is not there, as Iceberg or as Spark says so."""
    return any(name.endswith("NoSuchTableException") for name, _ in _causes(error))


def is_server_lost(error: PySparkException) -> bool:
    """Returns whether a request to a Connect server failed and Spark named no cause of its own."""
    return type(error).__name__ == "SparkConnectGrpcException" and not any(_causes(error))


def log_no_raised_errors() -> None:
    """Keeps pyspark from logging each exception that it is about to raise to stderr, with the Java stack."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def first_line(error: BaseException) -> str:
    """Returns the root cause in one line, without the Java stack: the innermost message, which others wrap."""
    for name, message in reversed(list(_causes(error))):
        if message:
            return f"{_shown(message.strip().splitlines()[0])} ({name.rpartition('.')[2]})"
    if (refusal := _refusal_of_server(error)) is not None:
        return _shown(refusal)
    # str() of a Java exception calls the JVM, which has just not answered.
    said = error.errmsg if isinstance(error, Py4JJavaError) else str(error)
    return _shown(said.strip().partition("\n")[0]) or type(error).__name__


def is_refused_by_server(error: BaseException, *, or_denied: bool) -> bool:
    """Returns whether a Connect server did not take a request because of its token.

    Some servers call that denied, but also a request that the user of a valid token may not make: see `or_denied`.
    """
    call = _failed_call(error)
    return call is not None and call.code().name in ("UNAUTHENTICATED", *(["PERMISSION_DENIED"] if or_denied else []))


def _refusal_of_server(error: BaseException) -> str | None:
    """Returns why a Connect server did not take a request, which pyspark has in the middle of a long text, or None."""
    call = _failed_call(error)
    if call is None:
        return None
    found = f"{str(call.details()).partition(chr(10))[0]} ({call.code().name})"
    server = getattr(call, SERVER, "")
    return f"the Spark Connect server {server} does not answer: {found}" if server else found


def _failed_call(error: BaseException) -> Any:
    call = error.__context__  # gRPC's, which the extra brings
    is_known = isinstance(error, PySparkException) and all(hasattr(call, name) for name in ("code", "details"))
    return call if is_known else None


def _shown(message: str) -> str:
    return _URL_SECRETS.sub(lambda match: f"{match[1]}?***" if match[1] else "***@", message)


def _causes(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yields (class, message) of the Java exception and of its causes, outermost first. Nothing for other errors."""
    if stack := getattr(error, "_stacktrace", None):
        yield from _causes_at_server(error, str(stack))
        return
    cause = _java_exception(error)
    try:
        while cause is not None:
            yield str(cause.getClass().getName()), str(cause.getMessage() or "")
            cause = cause.getCause()
    except (Py4JError, OSError):
        # The JVM went down during these calls. What it has answered so far is all there is.
        return


def _causes_at_server(error: BaseException, stack: str) -> Iterator[tuple[str, str]]:
    """As `_causes`, for an error of Spark Connect: it brings the stack trace as text, and no message of its own."""
    name = stack.strip().partition("\n")[0].partition(":")[0]
    yield _CONDITIONS.get(_condition(error), name), str(error).partition("\n\nJVM stacktrace:")[0]
    for cause in _CAUSE.finditer(stack):
        yield cause["name"], cause["message"] or ""


def _condition(error: BaseException) -> str:
    """Spark's name of an error, empty where it has none, or where a JVM that went down cannot say it."""
    try:
        return (error.getCondition() or "") if isinstance(error, PySparkException) else ""
    except (Py4JError, OSError):
        return ""


def _java_exception(error: BaseException) -> Any:
    if isinstance(error, Py4JJavaError):
        return error.java_exception
    # pyspark turns some Java exceptions into classes of its own, and keeps the original here.
    return error._origin if isinstance(error, CapturedException) else None
