"""Syncmaven's own command line, as it is on npm, with the project that sends the rows of a table of PostgreSQL."""

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import yaml

from tests.support.postgres import PostgresServer
from tests.sync.push.pushed_table import Row

PACKAGE = "syncmaven@0.0.11"


class Outcome(NamedTuple):
    """How a run ended. No exit code: it had not ended in time, and was killed."""

    exit_code: int | None
    output: str


class OriginalSync:
    """The sync `people`, by the command line that is installed beside a destination's script."""

    def __init__(self, folder: Path, script: Path, postgres: PostgresServer, url: str) -> None:
        self._folder, self._script, self._postgres = folder, script, postgres
        self._schema = postgres.new_schema()
        self.credentials: Row = {"url": url}
        self.id_type = "integer"
        self.columns, self.cursor = "id, email, city", "id"
        self.command: Sequence[str] = (script.name,)
        self.sync: Row = {"model": "people", "destination": "crm", "stream": "people", "options": {"list": "vip"}}

    def fill(self, rows: Sequence[Row]) -> None:
        """Replaces the rows of the table."""
        table = f"{self._schema}.people"
        with psycopg.connect(self._postgres.conninfo(), autocommit=True) as connection:
            connection.execute(f"DROP TABLE IF EXISTS {table}".encode())
            connection.execute(f"CREATE TABLE {table} (id {self.id_type}, email text, city text)".encode())
            with connection.cursor().copy(f"COPY {table} FROM STDIN".encode()) as copy:
                for row in rows:
                    copy.write_row((row["id"], row["email"], row["city"]))

    def run(self, *arguments: str, seconds: float = 60.0) -> Outcome:
        """Runs the sync. After so many seconds it is killed with all that it started."""
        project = self._project()
        command = [str(self._script.parent / "node_modules/.bin/syncmaven"), "sync", "--project-dir", str(project)]
        command += ["--state", f"{self._database}?schema=state_{self._schema}", *arguments]
        # A version of 0.0.0 neither asks the registry for a newer one nor reports the use.
        environment = {"PATH": os.environ["PATH"], "HOME": str(self._folder), "SYNCMAVEN_VERSION": "0.0.0"}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env=environment, start_new_session=True, text=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=seconds)
            return Outcome(process.returncode, output)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return Outcome(None, output)

    def saved_cursor(self) -> Any:
        """The cursor that it has saved; None if there is none."""
        key = f"syncId=people::$lastCursor={self.cursor}"
        query = f"SELECT value FROM state_{self._schema}.syncmaven_store WHERE key = %s"
        with psycopg.connect(self._postgres.conninfo()) as connection:
            found = connection.execute(query.encode(), (key,)).fetchone()
        return None if found is None else (json.loads(found[0]) or {}).get("val")

    @property
    def _database(self) -> str:
        return f"postgres://tester@127.0.0.1:{self._postgres.port}/postgres"

    def _project(self) -> Path:
        project = self._folder / "project"
        past_cursor = f"(:cursor IS NULL OR {self.cursor} > :cursor)"
        query = f"SELECT {self.columns} FROM {self._schema}.people WHERE {past_cursor} ORDER BY {self.cursor}"
        node = {"type": "npm", "dir": str(self._script.parent), "command": " ".join((_node(), *self.command))}
        for place, content in {
            "models/people.yml": {"datasource": self._database, "query": query, "cursor": self.cursor},
            "connections/crm.yml": {"package": node, "credentials": self.credentials},
            "syncs/people.yml": self.sync,
        }.items():
            file = project / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(yaml.safe_dump(content))
        return project


def _node() -> str:
    return subprocess.run(["sh", "-c", "command -v node"], capture_output=True, text=True, check=True).stdout.strip()
