"""Trino for tests: a real server of one node, with its catalogs made by SQL.

`python -m tests.support.databases.trino 483 FOLDER` makes such a server of a version of which Maven Central has the
parts alone: the engine and the Iceberg connector. Up to 476 it has the whole one, `io.trino:trino-server:476:tar.gz`.
"""

import argparse
import json
import os
import shutil
import subprocess
import threading
import time
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tests.support.needs import lacks, require_maven
from tests.support.network.ports import free_port

HOME = "TRINO_HOME"
"""The variable that names a folder with a server: an unpacked release, or what this module makes."""

JAVA = "TRINO_JAVA_HOME"
"""The variable that names a JDK for that server: from 24 on for Trino 476, from 25 on for 483. Spark's own is older."""

_MAIN_CLASS = "io.trino.server.TrinoServer"
_PATIENCE_SECONDS = 300.0
_FETCH_SECONDS = 1200.0
# The first is of the launcher of Trino itself, the others of tests, which have a few rows.
_JAVA_OPTIONS = ("--add-modules=jdk.incubator.vector", "-Xmx2g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_POM = (
    "<project><modelVersion>4.0.0</modelVersion><groupId>t</groupId><artifactId>t</artifactId><version>1</version>"
    "<dependencies><dependency><groupId>io.trino</groupId><artifactId>{artifact}</artifactId><version>{version}"
    "</version>{but}</dependency></dependencies></project>"
)
# The engine gives it to its plugins.
_WITHOUT_SPI = (
    "<exclusions><exclusion><groupId>io.trino</groupId><artifactId>trino-spi</artifactId></exclusion></exclusions>"
)
# The one class of `trino-server-main` that starts it, which Maven Central lacks.
_MAIN = """package io.trino.server;

public final class TrinoServer {
    public static void main(String[] arguments) {
        new Server().start(Server.class.getPackage().getImplementationVersion());
    }
}
"""


class TrinoRefusal(Exception):
    """A statement that the server refused. Its text begins with the name of the error."""


class Column(NamedTuple):
    """A column of an answer. `type` is its signature, as Trino's protocol has it."""

    name: str
    type: Mapping[str, Any]


class Answer(NamedTuple):
    """What a statement gave: values of JSON, as the server sends them."""

    columns: list[Column]
    rows: list[list[Any]]


class TrinoServer(NamedTuple):
    """A running server."""

    uri: str

    @property
    def version(self) -> str:
        with urllib.request.urlopen(f"{self.uri}/v1/info", timeout=_PATIENCE_SECONDS) as answer:
            return str(json.load(answer)["nodeVersion"]["version"])

    def create_catalog(self, name: str, properties: Mapping[str, str]) -> None:
        """Makes a catalog of the Iceberg connector."""
        given = ", ".join(f""""{key}" = '{value}'""" for key, value in properties.items())
        self.run(f"create catalog {name} using iceberg with ({given})")

    def run(self, sql: str) -> Answer:
        """Runs a statement to its end."""
        # Without that capability it cuts times to milliseconds.
        headers = {"X-Trino-User": "tester", "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME"}
        request = urllib.request.Request(f"{self.uri}/v1/statement", sql.encode(), headers)
        columns: list[Column] = []
        rows: list[list[Any]] = []
        while True:
            with urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS) as answer:
                page = json.load(answer)
            if "error" in page:
                raise TrinoRefusal(f"{page['error']['errorName']}: {page['error']['message']}")
            columns = columns or [Column(each["name"], each["typeSignature"]) for each in page.get("columns", ())]
            rows += page.get("data", ())
            if "nextUri" not in page:
                return Answer(columns, rows)
            request = urllib.request.Request(page["nextUri"], headers=headers)


@contextmanager
def running_trino(folder: Path) -> Iterator[TrinoServer]:
    """Starts the server of TRINO_HOME, with its work in a folder. Skips the test where there is none."""
    home = _required(HOME, "lib")
    java = _required(JAVA, "bin/java") / "bin" / "java"
    port = free_port()
    settings = {
        "node.environment": "tests",
        "node.bind-ip": "127.0.0.1",
        "node.internal-address": "127.0.0.1",
        "coordinator": "true",
        "node-scheduler.include-coordinator": "true",
        "http-server.http.port": str(port),
        "discovery.uri": f"http://127.0.0.1:{port}",
        "catalog.management": "dynamic",
        "plugin.dir": str(home / "plugin"),
    }
    config, log = folder / "config.properties", folder / "trino.log"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    words = [str(java), *_JAVA_OPTIONS, f"-Dconfig={config}", "-cp", f"{home / 'lib'}/*", _MAIN_CLASS]
    with log.open("wb") as out, subprocess.Popen(words, stdout=out, stderr=out, cwd=folder) as process:
        try:
            server = TrinoServer(f"http://127.0.0.1:{port}")
            _wait(server, process, log)
            yield server
        finally:
            process.kill()


def _required(variable: str, has: str) -> Path:
    home = Path(os.environ.get(variable, "/nowhere"))
    if not (home / has).exists():
        lacks("trino", f"no Trino: {variable} names no folder with {has} (CONTRIBUTING.md says how to get one)")
    return home


def _wait(server: TrinoServer, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Until it has a node to run statements on."""
    deadline, pause = time.monotonic() + _PATIENCE_SECONDS, threading.Event()
    while True:
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-5000:]
        try:
            with urllib.request.urlopen(f"{server.uri}/v1/info", timeout=_PATIENCE_SECONDS) as answer:
                is_starting = json.load(answer)["starting"]
            if not is_starting and server.run("select 1").rows == [[1]]:
                return
        except (OSError, TrinoRefusal):
            pass
        pause.wait(0.5)


def make(version: str, folder: Path) -> None:
    """Makes a server in a folder, of the parts that Maven Central has: the engine, and the Iceberg connector alone."""
    require_maven()
    jdk = _required(JAVA, "bin/javac")
    library, plugin = folder / "lib", folder / "plugin" / "iceberg"
    shutil.rmtree(folder, ignore_errors=True)
    for artifact, target, but in (("trino-main", library, ""), ("trino-iceberg", plugin, _WITHOUT_SPI)):
        target.mkdir(parents=True)
        _fetch(_POM.format(artifact=artifact, version=version, but=but), target)
    with TemporaryDirectory() as built:
        source = Path(built, "TrinoServer.java")
        source.write_text(_MAIN)
        command = [str(jdk / "bin" / "javac"), "-cp", f"{library}/*", "-d", built, str(source)]
        subprocess.run(command, check=True, timeout=_FETCH_SECONDS)
        with zipfile.ZipFile(library / "main.jar", "w") as jar:
            # The server asks for its version where the first class of its package was found: here.
            jar.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\nImplementation-Version: {version}\n")
            name = f"{_MAIN_CLASS.replace('.', '/')}.class"
            jar.write(Path(built, name), name)
    # Of a release the packager of Trino's plugins writes it.
    with zipfile.ZipFile(plugin / "services.jar", "w") as jar:
        jar.writestr("META-INF/services/io.trino.spi.Plugin", "io.trino.plugin.iceberg.IcebergPlugin\n")


def _fetch(pom: str, target: Path) -> None:
    """Copies what an artifact needs to run, itself among it."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "pom.xml")
        file.write_text(pom)
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
        words = ["mvn", "-B", "-q", "-f", str(file), goal, "-DincludeScope=runtime", f"-DoutputDirectory={target}"]
        subprocess.run(words, check=True, timeout=_FETCH_SECONDS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="tests.support.databases.trino", description=make.__doc__)
    parser.add_argument("version")
    parser.add_argument("folder", type=Path)
    chosen = parser.parse_args()
    make(chosen.version, chosen.folder)
