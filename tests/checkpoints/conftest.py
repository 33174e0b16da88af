from collections.abc import Iterator

import pytest

from tests.postgres import PostgresServer, programs, running_server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    bin_folder = programs()
    if bin_folder is None:
        pytest.skip("no PostgreSQL server is installed (Debian: apt-get install postgresql)")
    with running_server(bin_folder) as server:
        yield server
