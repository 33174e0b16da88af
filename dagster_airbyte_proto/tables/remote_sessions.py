"""Sessions of Spark Connect: a client without a JVM, whose server may be on another machine.

- Those of pyspark (`SparkSession.builder.remote`, the setting `spark.remote`) and of databricks-connect have the same
  interface. What tells them from others is that they have no handle on a JVM.
- Most of our work calls Java's classes. It is refused before a connector starts, and the error says what to do instead.
"""

import os
import sys
from collections.abc import Mapping
from typing import Any

from dagster_airbyte_proto.errors import ConfigError

REMOTE = "spark.remote"
"""Spark's setting with the URL of a Connect server."""
TOKEN = "spark.connect.authenticate.token"  # noqa: S105 - the name of a setting
"""Spark's setting with the token that a Connect server demands of its clients."""

SERVER = "_airbyte_proto_server"
"""The attribute of a failed request with the URL of the server that did not answer, without its token."""

_TOKENS = ("token", "authorization")

_REMEDY = (
    "Give it a session of this machine or of a cluster: spark.master in the place of spark.remote, or a "
    "SparkSessionResource. docs/dagster/connect.md says what works on Spark Connect."
)


class _Waiting:
    """Whether requests to servers that do not answer are tried again. A flag and no lock: a signal handler sets it."""

    has_stopped = False


def stop_waiting() -> None:
    """Gives up all requests to servers that do not answer: somebody wants the process to end."""
    _Waiting.has_stopped = True


def wait_again() -> None:
    """Takes back `stop_waiting`, for the next command of the process."""
    _Waiting.has_stopped = False


def has_stopped_waiting() -> bool:
    return _Waiting.has_stopped


def tokens_of(config: Mapping[str, str]) -> frozenset[str]:
    """Returns the tokens in the settings of a session: in one of their own, and in the URL."""
    parameters = [each.partition("=") for each in config.get(REMOTE, "").split(";")[1:]]
    return frozenset({config.get(TOKEN, ""), *(value for name, _, value in parameters if name in _TOKENS)}) - {""}


def is_remote(session: Any) -> bool:
    """Returns whether a session is one of Spark Connect. It asks no server."""
    return not hasattr(session, "_jsparkSession")


def needs_jvm(doing: str, what: str) -> ConfigError:
    """Returns the error for work that a session of Spark Connect cannot do."""
    return ConfigError(doing, f"the session is one of Spark Connect, and {what} need Spark's own JVM", remedy=_REMEDY)


def check_has_jvm(doing: str, what: str, session: Any) -> None:
    """Raises ConfigError for a session of Spark Connect."""
    if is_remote(session):
        raise needs_jvm(doing, what)


def check_one_kind(doing: str, *, remote: bool) -> None:
    """Raises ConfigError for a session of Spark Connect beside one with a JVM. It starts nothing.

    pyspark's functions are those of one kind of session in a whole process.
    """
    context = sys.modules.get("pyspark.core.context")
    has_started_jvm = context is not None and context.SparkContext._active_spark_context is not None
    if remote and has_started_jvm and "SPARK_LOCAL_REMOTE" not in os.environ:
        there, wanted = "one with a JVM", f"one of Spark Connect ({REMOTE})"
    elif not remote and not has_started_jvm and "SPARK_CONNECT_MODE_ENABLED" in os.environ:
        there, wanted = "one of Spark Connect", f"one with a JVM (no {REMOTE})"
    else:
        return
    remedy = "Run them in processes of their own: two commands, or two runs of Dagster."
    raise ConfigError(doing, f"the session of this process is {there}, and {wanted} is wanted", remedy=remedy)
