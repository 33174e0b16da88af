"""The tries of a client of Spark Connect whose server does not answer: for half a minute, and not for ten minutes.

pyspark tries a request again for ten minutes. So it does with the one that found the server gone, with those by which
the work ends, and with those of its own threads, for which Python waits at the end of a process. Here all requests of
a client have one limit:

- A request is tried again for half a minute. Once one was given up, the others have a single try, for a minute.
- Nothing is tried again once the process ends, or once somebody pressed Ctrl-C.
"""

import sys
import threading
import time
from concurrent.futures import thread as pools
from typing import Any

import pyspark
from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicy, RetryPolicyState

from dagster_airbyte_proto.tables.remote_sessions import SERVER, has_stopped_waiting

_SECONDS = 30.0
_SINGLE_TRY_SECONDS = 60.0
_FIRST_PAUSE_MS = 50
# At the end of a process Python waits for threads that are in such a pause.
_LONGEST_PAUSE_MS = 2000


class ServerRetries(RetryPolicy):
    """Tries again what found no server. Everything else is left to the policy behind this one."""

    def __init__(self, server: str) -> None:
        super().__init__()
        self.server = server
        self._given_up_at = float("-inf")

    def can_retry(self, exception: BaseException) -> bool:
        code: Any = getattr(exception, "code", None)  # gRPC's, which has no types
        return callable(code) and getattr(code(), "name", "") == "UNAVAILABLE"

    def to_state(self) -> RetryPolicyState:
        return _Tries(self)

    def is_over(self, since: float) -> bool:
        """Returns whether a request that fails since then is given up."""
        now = time.monotonic()
        if now - self._given_up_at < _SINGLE_TRY_SECONDS:
            return True
        if now - since < _SECONDS:
            return False
        self._given_up_at = now
        return True


class _Tries(RetryPolicyState):
    """The tries of one request."""

    def __init__(self, retries: ServerRetries) -> None:
        super().__init__(retries)
        self._retries = retries
        self._since: float | None = None
        self._pause_ms = _FIRST_PAUSE_MS
        # On Ctrl-C pyspark itself sends a request: the server shall stop what it does.
        self._is_of_interrupt = isinstance(sys.exc_info()[1], KeyboardInterrupt)

    def next_attempt(self, exception: BaseException | None = None) -> int | None:
        """Returns the milliseconds until the next try, or None if the request is given up."""
        if exception is not None:
            setattr(exception, SERVER, self._retries.server)
        if self._since is None:
            self._since = time.monotonic()
        if _is_wanted_to_end() or self._is_of_interrupt or self._retries.is_over(self._since):
            return None
        pause, self._pause_ms = self._pause_ms, min(2 * self._pause_ms, _LONGEST_PAUSE_MS)
        return pause


def _is_wanted_to_end() -> bool:
    # At its end Python waits first for the threads of pools, which still see a main thread that lives, and then calls
    # what pyspark has registered.
    return has_stopped_waiting() or pools._shutdown or not threading.main_thread().is_alive()


def limit_retries(client: Any) -> None:
    """Limits the tries of a client, unless somebody has given it a policy other than pyspark's own."""
    policies = client.get_retry_policies()
    if [(type(each), vars(each)) for each in policies] == [(DefaultPolicy, vars(DefaultPolicy()))]:
        endpoint = getattr(getattr(client, "_builder", None), "endpoint", "")
        client.set_retry_policies([ServerRetries(endpoint and f"sc://{endpoint}"), *policies])
