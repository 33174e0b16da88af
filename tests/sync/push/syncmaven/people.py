"""A service of people over HTTP, and the destination on Syncmaven's own kit that sends rows to it."""

import json
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa

from tests.support.needs import require_npm
from tests.sync.push.pushed_table import Row

PEOPLE = pa.schema([("id", pa.int64()), ("email", pa.string()), ("city", pa.string())])
KIT = ("@syncmaven/node-cdk@0.0.11", "zod@3.23.8")
SCRIPT = Path(__file__).with_name("people_destination.js")


class PeopleServer:
    """Keeps the rows that it gets. It fails those of some ids, and asks to slow down once for others."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.rows: list[tuple[str, Row]] = []
        self.calls = 0
        self.fails: set[int] = set()
        self.slows: set[int] = set()
        self.slows_for_ever = False
        people = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                row = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status = 500 if row["id"] in people.fails else 429 if row["id"] in people.slows else 200
                people.calls += 1
                if status == 200:
                    people.rows.append((self.path, row))
                if not people.slows_for_ever:
                    people.slows.discard(row["id"])
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._http = ThreadingHTTPServer((address, 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://{address}:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def installed(folder: Path, *packages: str, script: Path = SCRIPT) -> Path:
    """Installs packages of npm into a folder, with the destination beside them. Returns the destination's script."""
    require_npm()
    shutil.copy(script, folder)
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
    subprocess.run([*command, *packages], cwd=folder, check=True, timeout=250)
    return folder / script.name


def person(number: int, **more: object) -> Row:
    return {"id": number, "email": f"p{number}@example.com", "city": None, **more}
