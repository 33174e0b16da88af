"""Opens a session on a Spark Connect server.

pyspark has one session for each process, and gives it to whoever wants one, whatever URL and token they name. Here each
server has a session of its own; pyspark's is taken where it is of the same server. pyspark keeps also one whose server
has never answered it. So a session goes that failed its first call, and one whose token the server no longer takes:
what follows may have a better one.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.masking import Mask
from dagster_airbyte_proto.tables.remote_sessions import REMOTE, TOKEN, check_one_kind, is_remote, tokens_of
from dagster_airbyte_proto.tables.spark.jvm.errors import first_line, is_refused_by_server, log_no_raised_errors
from dagster_airbyte_proto.tables.spark.settings import SparkSettings

_opening = threading.Lock()
_opened_by_us: dict[str, Any] = {}
"""Sessions by their ids. Another one is the user's, who may work on with it."""


def connect(settings: SparkSettings) -> SparkSession:
    """Returns the process's session on the server that `spark.remote` names.

    Of the other settings only those of catalogs are sent: the rest is the server's own. Raises ConfigError if no server
    answers within half a minute, it refuses the token, the client's packages are missing, or the process has a session
    with a JVM.
    """
    doing, mask = "connecting to Spark", Mask(tokens_of(settings.config))
    check_one_kind(doing, remote=True)
    try:
        session: SparkSession = _answering_session(url_with_token(settings.config))
        for key, value in settings.config.items():
            if key.startswith("spark.sql.catalog."):
                session.conf.set(key, value)
    except ImportError as error:  # pyspark's own is of this class too
        remedy = 'Install the extra: pip install "dagster_airbyte_proto[connect]".'
        raise ConfigError(doing, first_line(error), remedy=remedy) from error
    except (PySparkException, ValueError) as error:  # the second one for a port that is no number
        said = first_line(error)
        found = mask.text(said)  # A URL that pyspark cannot read is in its message.
        remedy = f"Does the server that {REMOTE} names run, may this machine reach it, and is {TOKEN} the server's?"
        raise ConfigError(doing, found, remedy=remedy) from (error if found == said else None)
    log_no_raised_errors()
    return session


def _answering_session(url: str) -> Any:
    """Returns the process's session once its server has answered it."""
    while True:
        with _opening:
            before = _session_on(url)
            session: Any = _new_session(url) if before is None else before
            if session is not before:
                _opened_by_us[session.session_id] = session
        _limit_retries(session)
        try:
            session.conf.get("spark.app.name", "")  # A call each time: `version` is one for the first time alone.
        except BaseException as error:
            if session is not before:
                _forget(session)
                raise
            # Others work with one that was there before: a server that is away for a while is no reason to take it.
            if not forget_if_useless(session, error):
                raise
        else:
            return session


def opened_by_user(session: Callable[[], SparkSession]) -> SparkSession:
    """Opens a session that the user makes. It gives up a server that does not answer as soon as ours do."""
    opened = session()
    if is_remote(opened):
        _limit_retries(opened)
    return opened


def _limit_retries(session: Any) -> None:
    """Has the session give up a server that does not answer after half a minute, where pyspark would after ten."""
    if (client := getattr(session, "client", None)) is not None:
        from dagster_airbyte_proto.tables.spark.connect_retries import limit_retries  # An extra.

        limit_retries(client)


def forget_if_useless(session: Any, error: BaseException) -> bool:
    """Forgets the process's session if its server refused its token, or has begun anew and no longer knows it. Returns
    whether it did. A session that pyspark gives to nobody else stays, and one of the user's that was denied something.
    """
    is_ours = getattr(session, "session_id", None) in _opened_by_us
    is_of_process = is_ours or session is _process_session()
    is_refused = is_of_process and is_refused_by_server(error, or_denied=is_ours)
    if is_refused or getattr(session, "is_stopped", False):
        _forget(session)
        return True
    return False


def check_same_server(doing: str, frame: Any, session: Any) -> None:
    """Raises ConfigError for a frame of another server than the session's: it would be written to the tables of its
    own."""
    own = frame.sparkSession
    if own is not session and (not is_remote(own) or _server(own.client._builder) != _server(session.client._builder)):
        remedy = "Return it as pandas, polars or pyarrow, or give the asset the IO manager of the frame's server."
        raise ConfigError(doing, "the frame is of another Spark server than the table", remedy=remedy)


def _new_session(url: str) -> Any:
    builder = SparkSession.builder.remote(url)
    return builder.create() if _is_of_server(url) else builder.getOrCreate()


def _session_on(url: str) -> Any:
    """Returns the session that this process has on the server of a URL, or None."""
    for each in [*_opened_by_us.values()]:
        if each.is_stopped:  # Else pyspark keeps it as its own, and makes a new one for whoever wants one.
            _forget(each)
    current = _process_session()
    if not _is_of_server(url):
        return current
    from pyspark.sql.connect.client import DefaultChannelBuilder  # An extra.

    server = _server(DefaultChannelBuilder(url))
    found = (each for each in (current, *_opened_by_us.values()) if each is not None)
    return next((each for each in found if _server(each.client._builder) == server), None)


def _is_of_server(url: str) -> bool:
    """True unless it is `local`, by which pyspark starts a server in this process."""
    return not url.startswith("local")


def _server(builder: Any) -> tuple[Any, ...]:
    """All by which a channel tells its server and user, but its token: that may have been renewed."""
    headers = sorted((name, value) for name, value in builder.metadata() if name != "authorization")
    endpoint, is_encrypted = getattr(builder, "endpoint", None), getattr(builder, "use_ssl", None)
    return endpoint, is_encrypted, builder.userId, builder.session_id, headers


def _process_session() -> Any:
    from pyspark.sql.connect.session import SparkSession as RemoteSession  # An extra.

    try:
        return RemoteSession.active()
    except PySparkException:
        return None


def _forget(session: Any) -> None:
    _opened_by_us.pop(session.session_id, None)
    # Else a server that does not answer would be called once more.
    session.release_session_on_close = False
    session.stop()


def url_with_token(config: Mapping[str, str]) -> str:
    """Returns the URL that carries the token, if the settings have one.

    pyspark's own parameter for a token demands TLS of every server that is not on `localhost`, and Spark's server has
    none. So without TLS the token is the header that the server looks for, which any parameter can be.
    """
    url, token = config[REMOTE], quote(config.get(TOKEN, ""), safe="")
    if not token:
        return url
    server, _, parameters = url.partition(";")
    is_encrypted = "use_ssl=true" in parameters.lower().split(";")
    parameters += f"{';' if parameters else ''}{'token=' if is_encrypted else 'authorization=Bearer%20'}{token}"
    return f"{server.rstrip('/')}/;{parameters}"
