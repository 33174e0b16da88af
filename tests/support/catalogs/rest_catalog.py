"""Iceberg's own REST server for tests: a process over a catalog in SQLite. Its classes come from Maven."""

import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.needs import lacks, require_maven
from tests.support.network.ports import free_port

# The last version whose test fixtures were published.
_ICEBERG = "1.11.0"
_JETTY = "12.1.4"
_CLASSES = (
    ("org.apache.iceberg", "iceberg-open-api", _ICEBERG, "test-fixtures"),
    ("org.apache.iceberg", "iceberg-core", _ICEBERG, ""),
    ("org.apache.iceberg", "iceberg-core", _ICEBERG, "tests"),
    ("org.apache.hadoop", "hadoop-client-api", "3.4.2", ""),
    ("org.apache.hadoop", "hadoop-client-runtime", "3.4.2", ""),
    ("org.eclipse.jetty.ee10", "jetty-ee10-servlet", _JETTY, ""),
    ("org.eclipse.jetty.compression", "jetty-compression-server", _JETTY, ""),
    ("org.eclipse.jetty.compression", "jetty-compression-gzip", _JETTY, ""),
    ("org.xerial", "sqlite-jdbc", "3.50.3.0", ""),
    ("org.slf4j", "slf4j-nop", "2.0.17", ""),
)
_S3_CLASSES = tuple(("org.apache.iceberg", name, _ICEBERG, "") for name in ("iceberg-aws", "iceberg-aws-bundle"))
_PATIENCE_SECONDS = 60.0
_FETCH_SECONDS = 600.0


@contextmanager
def running_catalog(
    folder: Path, warehouse: str | None = None, properties: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yields the URI of a running server. Its catalog is in the folder, and its tables too, unless a warehouse in S3 is
    given, with the properties for it."""
    require_maven()
    classes, port = _classes(folder, _S3_CLASSES if warehouse else ()), free_port()
    given = {
        "warehouse": warehouse or str(folder / "ware house"),
        "uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        "rest.port": str(port),
        **(properties or {}),
    }
    settings = [f"CATALOG_{_variable(name)}={value}" for name, value in given.items()]
    words = ["env", *settings, "java", "-Xmx256m", "-cp", classes, "org.apache.iceberg.rest.RESTCatalogServer"]
    with (folder / "server.log").open("wb") as log, subprocess.Popen(words, stdout=log, stderr=log) as server:
        try:
            uri = f"http://127.0.0.1:{port}/"
            _wait(server, uri, folder / "server.log")
            yield uri
        finally:
            server.kill()


def _variable(name: str) -> str:
    """The server reads the property `s3.path-style-access` from the variable CATALOG_S3_PATH__STYLE__ACCESS."""
    return name.replace("-", "__").replace(".", "_").upper()


def _classes(folder: Path, more: Sequence[tuple[str, ...]]) -> str:
    (folder / "pom.xml").write_text(_pom((*_CLASSES, *more)))
    wanted = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"
    call = ["mvn", "-B", "-q", "-f", str(folder / "pom.xml"), wanted, f"-Dmdep.outputFile={folder / 'classes'}"]
    done = subprocess.run(call, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    if done.returncode:
        lacks("maven", f"Maven could not fetch the server's classes: {done.stdout[-1000:]}")
    return (folder / "classes").read_text().strip()


def _pom(classes: Sequence[tuple[str, ...]]) -> str:
    names = ("groupId", "artifactId", "version", "classifier")
    needed = "".join(
        f"<dependency>{''.join(f'<{name}>{word}</{name}>' for name, word in zip(names, each, strict=True) if word)}"
        "</dependency>"
        for each in classes
    )
    own = "<modelVersion>4.0.0</modelVersion><groupId>t</groupId><artifactId>t</artifactId><version>1</version>"
    return f"<project>{own}<dependencies>{needed}</dependencies></project>"


def _wait(server: "subprocess.Popen[bytes]", uri: str, log: Path) -> None:
    deadline, pause = time.monotonic() + _PATIENCE_SECONDS, threading.Event()
    while True:
        assert server.poll() is None and time.monotonic() < deadline, log.read_text()
        try:
            with urllib.request.urlopen(f"{uri}v1/config", timeout=_PATIENCE_SECONDS):
                return
        except OSError:
            pause.wait(0.05)
