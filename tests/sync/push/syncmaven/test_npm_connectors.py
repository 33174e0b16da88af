"""The connectors that Syncmaven has on npm, pushed to from an Iceberg table, beside Syncmaven's own command line with
the same rows: the requests at the service are equal.

There are three: of Resend, Facebook Ads and Twitter Ads, all of 0.0.1-alpha.22. The kit that they pin is not on npm, so
that npm installs them only with an override by that of 0.0.11. So Twitter's runs as it is published. The other two
bring an old kit within their script, which loses rows under any host: the source that is in their packages is compiled
here, and runs on the kit of 0.0.11. The connectors call their services at fixed addresses, which `redirected.js` turns
to the server of the test.
"""

import json
import secrets
import subprocess
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.sync.connector.launcher_choice import ConnectorOptions
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.tables.iceberg.tables import IcebergTables
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.support.needs import require_npm
from tests.support.postgres import PostgresServer
from tests.sync.push.pushed_table import PushedTable, Row
from tests.sync.push.syncmaven.original import PACKAGE, OriginalSync

pytestmark = [
    pytest.mark.connectors,
    pytest.mark.postgres,
    pytest.mark.spark,
    pytest.mark.nightly,
    pytest.mark.timeout(600),
]

_VERSION, _KIT = "0.0.1-alpha.22", "0.0.11"
_REDIRECT = Path(__file__).with_name("redirected.js")
_COMPILER = """
const fs = require("fs"), ts = require("typescript");
for (const folder of process.argv.slice(1)) {
  const options = { module: "commonjs", target: "es2021", esModuleInterop: true };
  const source = fs.readFileSync(`${folder}/src/index.ts`, "utf8");
  fs.writeFileSync(`${folder}/compiled.js`, ts.transpileModule(source, { compilerOptions: options }).outputText);
}
"""
# They are new for each process, or name the sync, which has another id in each of the two.
_OF_THE_RUN = {"description", "session_id", "effective_at", "expires_at"}


class Connector(NamedTuple):
    """A connector of npm: its package, its credentials, the fields that it takes, and its script with the old kit, if
    it is published with one."""

    package: str
    credentials: Row
    fields: str
    old_script: str | None = "dist/main.js"


_CONNECTORS = {
    "resend": Connector("@syncmaven/resend", {"apiKey": "key"}, "email, city AS name"),
    "facebook-ads": Connector("@syncmaven/facebook-ads", {"accessToken": "token", "accountId": "7"}, "email"),
    "twitter-ads": Connector(
        "@syncmaven/twitter-ads",
        dict.fromkeys(("consumerKey", "consumerSecret", "accessToken", "accessTokenSecret", "accountId"), "7"),
        "email",
        old_script=None,
    ),
}
_WITH_OLD_KIT = [name for name, each in _CONNECTORS.items() if each.old_script]
_OVERRIDES = {"@syncmaven/node-cdk": _KIT, "@syncmaven/protocol": _KIT}


class AudienceServer:
    """Has audiences by name, as the three services do, and keeps the requests that it gets."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Any]] = []
        self._audiences: list[Row] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
                answer = json.dumps(service.answer(self.command, self.path, _parsed(body))).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_DELETE = _answer

            def log_message(self, *_: object) -> None: ...

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def answer(self, method: str, path: str, body: Any) -> Row:
        self.requests.append((method, path.partition("&description=")[0], _settled(body)))
        if not path.partition("?")[0].endswith("audiences"):
            return {"id": "contact"}
        if method == "GET":
            return {"object": "list", "data": self._audiences}
        self._audiences.append({"id": "audience", "name": "people"})
        return {"id": "audience", "data": {"id": "audience"}}

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def _parsed(body: str) -> Any:
    try:
        return json.loads(body or "null")
    except ValueError:
        return body


def _settled(body: Any) -> Any:
    if isinstance(body, dict):
        return {name: _settled(part) for name, part in body.items() if name not in _OF_THE_RUN}
    return [_settled(part) for part in body] if isinstance(body, list) else body


class _IcebergPeople(PushedTable):
    """The connection `crm` on an Iceberg table of people, in the test session."""

    def __init__(self, folder: Path, spark: SparkSession, settings: SparkSettings) -> None:
        super().__init__(folder, protocol="syncmaven")
        self._spark, self._writer = spark, IcebergTables(spark, settings)
        self.name = f"{settings.catalog}.people_{secrets.token_hex(4)}.people"
        self._spark.sql(f"CREATE NAMESPACE {self.name.rpartition('.')[0]}")
        self._spark.sql(f"CREATE TABLE {self.name} (id bigint, email string, city string) USING iceberg")
        self.options["name"] = f"crm_{secrets.token_hex(4)}"  # The session's warehouse has the delivered tables of all.

    def engine(self) -> Engine:
        return Engine(self.settings, tables=self._writer, connector_options=ConnectorOptions(stop_grace_seconds=0.2))

    def add(self, first: int, last: int) -> None:
        person = "id, concat('P', lpad(id, 4, '0'), '@Example.com'), if(id % 3 = 0, 'Łódź', 'Ada of Oslo')"
        self._spark.sql(f"INSERT INTO {self.name} SELECT {person} FROM range({first}, {last})")

    def rows(self) -> Sequence[Row]:
        return [row.asDict() for row in self._spark.sql(f"SELECT * FROM {self.name} ORDER BY id").collect()]


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the connectors, and the command line beside them."""
    require_npm()
    folder = tmp_path_factory.mktemp("connectors")
    wanted = {each.package: _VERSION for each in _CONNECTORS.values()}
    about = {"private": True, "dependencies": wanted, "overrides": _OVERRIDES}
    (folder / "package.json").write_text(json.dumps(about))
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", PACKAGE, "typescript@5.4.5"]
    subprocess.run(command, cwd=folder, check=True, timeout=250)
    compiled = [f"node_modules/{each.package}" for each in _CONNECTORS.values()]
    subprocess.run(["node", "-e", _COMPILER, *compiled], cwd=folder, check=True, timeout=60)
    return folder


@pytest.fixture
def services() -> Iterator[tuple[AudienceServer, AudienceServer]]:
    """The one that the command line calls, and the one that our push calls."""
    opened = AudienceServer(), AudienceServer()
    yield opened
    for each in opened:
        each.close()


def _run_as_published(table: PushedTable, connector: Connector, service: AudienceServer, **launch: str) -> None:
    """From now on the destination is the package of npm. Its calls go to the service."""
    package = f"{connector.package}@{_VERSION}"
    table.launch = {"kind": "npm", "package": package, "overrides": _OVERRIDES, **launch}
    variables = {"NODE_OPTIONS": f'--require "{_REDIRECT}"', "REDIRECTED_TO": service.url}
    table.connector = {"env_vars": [f"{name}={value}" for name, value in variables.items()]}
    table.stream, table.config = "audience", connector.credentials


@pytest.mark.parametrize("name", _CONNECTORS)
def test_the_same_rows_make_the_same_requests(
    name: str,
    packages: Path,
    services: tuple[AudienceServer, AudienceServer],
    postgres_server: PostgresServer,
    spark: SparkSession,
    spark_settings: SparkSettings,
    tmp_path: Path,
) -> None:
    connector, (theirs, ours) = _CONNECTORS[name], services
    published = packages / "node_modules" / connector.package
    script = published / ("compiled.js" if connector.old_script else "dist/index.js")
    options = {"audienceName": "people"}

    original = OriginalSync(tmp_path, packages / "package.json", postgres_server, theirs.url)
    original.columns, original.cursor, original.credentials = connector.fields, "email", connector.credentials
    original.command = ("--require", str(_REDIRECT), str(script), theirs.url)
    original.sync |= {"stream": "audience", "options": options}

    table = _IcebergPeople(tmp_path, spark, spark_settings)
    _run_as_published(table, connector, ours)
    if connector.old_script:
        table.launch = {"kind": "local", "command": ["node", str(script)]}
    sql = f"SELECT {connector.fields} FROM {table.name}"
    table.push = {"sql": sql, "key": ["email"], "changes": "cursor", "cursor": "email", "options": options}

    table.add(1, 41)
    for last in (41, 53):
        original.fill(table.rows())
        outcome = original.run()
        assert outcome.exit_code == 0, outcome.output
        report = table.run().streams["audience"]
        assert (report.error, report.acknowledged) == (None, 40 if last == 41 else 12)
        table.add(41, 53)
    assert ours.requests == theirs.requests
    assert len(ours.requests) > (52 if name == "resend" else 4)
    assert {path.split("/")[1] for _, path, _ in ours.requests} <= {
        "api.resend.com",
        "graph.facebook.com",
        "ads-api.twitter.com",
    }


@pytest.mark.parametrize("name", _WITH_OLD_KIT)
def test_a_connector_with_the_old_kit_has_acknowledged_none(
    name: str,
    packages: Path,
    services: tuple[AudienceServer, AudienceServer],
    postgres_server: PostgresServer,
    tmp_path: Path,
) -> None:
    """As they are published, they read rows while they still open their stream, drop them, and give no result. The
    command line waits for that for ever."""
    connector, (theirs, ours) = _CONNECTORS[name], services
    assert connector.old_script is not None
    script = packages / "node_modules" / connector.package / connector.old_script
    rows = [{"id": number, "email": f"p{number}@example.com", "city": "Rome"} for number in range(20)]
    original = OriginalSync(tmp_path, packages / "package.json", postgres_server, theirs.url)
    original.columns, original.cursor, original.credentials = connector.fields, "email", connector.credentials
    original.command = ("--require", str(_REDIRECT), str(script), theirs.url)
    original.sync |= {"stream": "audience", "options": {"audienceName": "people"}}
    original.fill(rows)
    assert original.run(seconds=15).exit_code is None

    schema = pa.schema([("id", pa.int64()), ("email", pa.string()), ("city", pa.string())])
    table = PushedTable(tmp_path, protocol="syncmaven", schema=schema)
    mapped = {"email": "email"} if name == "facebook-ads" else {"email": "email", "name": "city"}
    table.push |= {"map": mapped, "key": ["email"], "options": {"audienceName": "people"}}
    table.fill(rows)
    _run_as_published(table, connector, ours)
    with pytest.raises(ConfigError, match=r"it has no file dist/index\.js; its package\.json names \./bin/"):
        table.run()
    _run_as_published(table, connector, ours, main=connector.old_script)
    report = table.run()
    stream = report.streams["audience"]
    assert (stream.status, stream.acknowledged, stream.unknown) == ("failed", 0, 20)
    assert "There is no started stream." in Path(report.log).read_text()
    assert ours.requests == theirs.requests and len(ours.requests) == 2  # The audience is looked for and made.
