"""Refusals: errors that a connector gets as the result of a call of its host."""

from dagster_airbyte_proto.protocols.rapidbyte.reported_error import ErrorCategory, ReportedError


class CallRefused(Exception):
    """The host refuses a call. It stays within this room: the connector gets `error` as the result."""

    def __init__(self, error: ReportedError) -> None:
        super().__init__(str(error))
        self.error = error


def refusal(category: ErrorCategory, code: str, message: str) -> CallRefused:
    """A refusal that says nothing of another try: it would end the same."""
    return CallRefused(ReportedError(category, code, message))


def passing_refusal(code: str, message: str) -> CallRefused:
    """A refusal by the network, which may have gone by the next time."""
    return CallRefused(
        ReportedError(ErrorCategory.TRANSIENT_NETWORK, code, message, is_retryable=True, is_safe_to_retry=True)
    )
