"""A long-lived process recovers from a wrong token of a Connect server, and from a server that begins anew."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.connect_server import running_server, without_spark
from tests.support.network.ports import free_port

pytestmark = [
    pytest.mark.spark,
    pytest.mark.usefixtures("_spark_connect"),
    pytest.mark.timeout(600),
]
# As Dagster's code server is: one process, whose resources get their tokens anew with each run.
_PROCESS = """
import sys
from pyspark.sql import SparkSession
from dagster_airbyte_proto import SparkSessionResource
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.tables.connect_client import url_with_token
from dagster_airbyte_proto.tables.iceberg.connect.catalog_settings import check_catalog

for line in sys.stdin:
    whose, token = line.split()
    config = {"spark.remote": sys.argv[1], "spark.connect.authenticate.token": token}
    try:
        if whose == "ours":
            session = SparkSessionResource(spark_config=config).spark_session
        else:
            session = SparkSession.builder.remote(url_with_token(config)).getOrCreate()
            check_catalog(session, "lake")
        print(session.range(3).count(), "rows by", session.session_id, flush=True)
    except ConfigError as error:
        print(error.found, flush=True)
"""


@contextmanager
def _process(url: str) -> Iterator[Callable[[str], str]]:
    """Yields a function that opens a session in one process: ours, or one of a resource of the user's."""
    command = [sys.executable, "-c", _PROCESS, url]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=without_spark()) as process:
        assert process.stdin is not None and process.stdout is not None

        def opened(words: str) -> str:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(f"{words}\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        try:
            yield opened
        finally:
            process.kill()


def test_a_wrong_token_is_forgotten_once_it_was_refused(tmp_path: Path) -> None:
    with running_server(tmp_path, token="right") as server, _process(server.url) as opened:
        for whose in ("ours", "theirs"):
            refused = opened(f"{whose} wrong")
            assert refused.endswith("(UNAUTHENTICATED)"), refused
        answers = {opened(f"{whose} right") for whose in ("ours", "theirs", "ours")}
        assert len(answers) == 1
        assert answers.pop().startswith("3 rows by ")


@pytest.mark.nightly
@pytest.mark.parametrize("token", ["right", "newer"])
def test_a_server_that_begins_anew_is_connected_to_anew(tmp_path: Path, token: str) -> None:
    port = free_port()
    with _process(f"sc://127.0.0.1:{port}") as opened:
        with running_server(tmp_path, port=port, token="right"):
            before = opened("ours right")
        with running_server(tmp_path, port=port, token=token):
            after = opened(f"ours {token}")
    assert before.startswith("3 rows by ") and after.startswith("3 rows by ")
    assert before != after
