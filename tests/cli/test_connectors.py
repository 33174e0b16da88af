"""`connectors`: what a registry file lists."""

import threading
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.launchers.registry.download import PUBLIC_REGISTRY
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.testing.folder import FOLDER_FORMAT
from tests.cli.conftest import Place

REGISTRY = Path(__file__).parent / "oss_registry.json"


class Server:
    """A registry behind a URL. `answered` has the status of each answer, `login` that of the last request."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.content = REGISTRY.read_bytes()
        self.marks: dict[str, str] = {"ETag": '"one"'}
        self.answered: list[int] = []
        self.login: str | None = None
        self.is_down = False


class _Handler(BaseHTTPRequestHandler):
    at: Server

    def do_GET(self) -> None:
        known = {"ETag": self.headers.get("If-None-Match"), "Last-Modified": self.headers.get("If-Modified-Since")}
        is_same = any(known[name] == mark for name, mark in self.at.marks.items())
        status = 304 if is_same else 200 if self.path == "/oss_registry.json?token=hunter22" else 404
        status = 503 if self.at.is_down else status
        self.at.answered.append(status)
        self.at.login = self.headers.get("Authorization")
        self.send_response(status)
        for name, mark in self.at.marks.items():
            self.send_header(name, mark)
        self.end_headers()
        if status == 200:
            self.wfile.write(self.at.content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the class that calls it
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    at = Server("")
    http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"at": at}))
    at.url = f"http://127.0.0.1:{http.server_port}/oss_registry.json?token=hunter22"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield at
    http.shutdown()
    http.server_close()
    thread.join()


def _names(place: Place, *words: str) -> list[str]:
    found = place.json("connectors", "search", *words)["connectors"]
    return [connector["name"] for connector in found]


@pytest.fixture
def registered(place: Place) -> Place:
    """Its settings name the registry, by a path that starts at their folder."""
    (place.folder / "registries").symlink_to(REGISTRY.parent)
    settings = f"catalog: {{format: {FOLDER_FORMAT}}}\nregistry: registries/{REGISTRY.name}\n"
    (place.folder / "airbyte-proto.yaml").write_text(settings)
    return place


def test_a_search_finds_each_word_in_names_and_titles_and_nothing_retired(registered: Place) -> None:
    assert _names(registered, "POSTGRES") == ["source-postgres", "destination-postgres"]
    assert _names(registered, "data sample") == ["source-faker"]
    assert _names(registered, "source") == ["source-postgres", "source-faker", "source-shop-api"]
    output = registered.run("connectors", "search", "api")
    assert output.out.split() == [
        *("connector", "title", "version", "support", "starts", "as"),
        *output.out.split()[6:7],
        *("source-shop-api", "Shop", "API", "0.3.0", "community", "manifest"),
    ]
    assert output.err == "WARN 1 entry of the registry could not be read: skipped\n"


def test_what_is_not_found_comes_with_the_nearest_names(registered: Place) -> None:
    output = registered.run("connectors", "search", "postgers")
    assert (output.code, output.out) == (0, "no connector matches 'postgers'; did you mean source-postgres?\n")
    output = registered.run("connectors", "show", "source-shopapi")
    assert output.code == 2
    assert output.err.endswith("the registry has none of that name\nDid you mean source-shop-api?\n")


@pytest.mark.parametrize("name", ["source-faker", "faker", "Sample Data", "airbyte/source-faker:1.0.0"])
def test_a_connector_is_shown_by_any_of_its_names(registered: Place, name: str) -> None:
    shown = registered.json("connectors", "show", name)
    assert shown == {
        "name": "source-faker",
        "title": "Sample Data",
        "role": "source",
        "image": "airbyte/source-faker:7.2.1",
        "version": "7.2.1",
        "language": "python",
        "launches": [
            {"kind": "pypi", "package": "airbyte-source-faker==7.2.1"},
            {"kind": "docker", "image": "airbyte/source-faker:7.2.1", "memory": "4g"},
        ],
        "support_level": "community",
        "release_date": "2024-01-31",
        "documentation_url": "https://example.com/faker",
        "allowed_hosts": [],
        "suggested_streams": ["users", "products"],
        "resources": {
            "default": {"memory_limit": "1Gi"},
            "jobSpecific": [
                {"jobType": "sync", "resourceRequirements": {"memory_request": "2Gi", "memory_limit": "4Gi"}}
            ],
        },
        "cdk_version": "python:6.61.6",
        "retired": False,
        "spec": True,
    }


def test_a_person_sees_what_a_connector_needs_and_how_it_starts(registered: Place) -> None:
    shown = registered.run("connectors", "show", "faker").out
    for line in (
        'launch {kind: pypi, package: "airbyte-source-faker==7.2.1"}',
        "resources memory_limit 1Gi",
        "resources sync: memory_request 2Gi, memory_limit 4Gi",
        "suggested streams users, products",
        "language python (python:6.61.6)",
    ):
        assert line in " ".join(shown.split())
    assert "retired" in registered.run("connectors", "show", "postgres-old").out
    odd = registered.json("connectors", "show", "postgres")
    assert (odd["role"], odd["launches"][-1].keys()) == ("source", {"kind", "image"})
    low_code = registered.json("connectors", "show", "shop-api")
    assert [launch["kind"] for launch in low_code["launches"]] == ["manifest", "docker"]
    assert low_code["allowed_hosts"] == ["${subdomain}.example.com"]


@pytest.mark.parametrize(
    ("content", "output"),
    [
        ("{", "Input data was truncated"),
        ('{"sources": {}}', "Expected `array`, got `object` - at `$.sources`"),
        ("{}", "it has neither sources nor destinations"),
        ('{"sources": [{"name": "x"}]}', "none of its entries has a name, a dockerRepository and a dockerImageTag"),
    ],
)
def test_one_that_is_no_registry_is_reported_plainly(place: Place, content: str, output: str) -> None:
    (place.folder / "broken.json").write_text(content)
    result = place.run("connectors", "search", "x", "--registry", "broken.json")
    assert result.code == 2
    assert f"reading the connector registry broken.json: {output}" in result.err
    assert "oss_registry.json" in result.err


def test_an_entry_in_another_encoding_is_skipped(place: Place) -> None:
    entry = b'{"name": "Caf\xe9", "dockerRepository": "airbyte/source-cafe", "dockerImageTag": "1.0.0"}'
    (place.folder / "mixed.json").write_bytes(b'{"sources": [%b, %b]}' % (entry, entry.replace(b"\xe9", b"e")))
    output = place.run("connectors", "search", "cafe", "--registry", "mixed.json")
    assert (output.code, output.err) == (0, "WARN 1 entry of the registry could not be read: skipped\n")
    assert "source-cafe" in output.out


def test_the_default_is_the_public_registry(tmp_path: Path) -> None:
    assert Settings.load(tmp_path).registry == PUBLIC_REGISTRY


def test_a_registry_that_is_not_there_is_reported_plainly(place: Place) -> None:
    offline = place.run("connectors", "search", "x", "--registry", "http://registry.invalid/all.json")
    assert (offline.code, "the host cannot be found; check the network" in offline.err) == (2, True), offline.err
    assert "A package, an image, a manifest or a command needs no registry." in offline.err
    result = place.run("connectors", "search", "x", "--registry", "none.json")
    assert (result.code, "No such file" in result.err) == (2, True)


def test_a_url_is_asked_again_for_what_changed_only(place: Place, server: Server) -> None:
    words = ("postgres", "--registry", server.url)
    for marks in ({"ETag": '"one"'}, {"Last-Modified": "Sat, 21 Nov 2026 10:00:00 GMT"}):
        server.marks = marks
        assert _names(place, *words) == _names(place, *words) == ["source-postgres", "destination-postgres"]
    assert server.answered == [200, 304, 200, 304]
    server.marks, server.content = {}, server.content.replace(b"destination-postgres", b"destination-postgres2")
    assert _names(place, *words) == ["source-postgres", "destination-postgres2"]
    server.content = b"<html>"
    output = place.run("connectors", "search", *words)
    assert (output.code, "hunter22" in output.err) == (2, False)
    gone = server.url.replace("oss_", "no_")
    output = place.run("connectors", "search", "x", "--registry", gone)
    assert (output.code, "it answers 404" in output.err, "hunter22" in output.err) == (2, True, False)


def test_a_login_in_a_url_is_sent_and_never_shown(place: Place, server: Server) -> None:
    url = server.url.replace("//", "//ann:open%20sesame@")
    assert place.run("connectors", "search", "faker", "--registry", url).code == 0
    assert server.login == "Basic " + b64encode(b"ann:open sesame").decode()
    refused = place.run("connectors", "search", "faker", "--registry", "http://ann:sesame@localhost.invalid/none")
    assert (refused.code, "sesame" in refused.err) == (2, False)


def test_a_url_that_is_down_is_answered_from_what_was_kept(place: Place, server: Server) -> None:
    words = ("connectors", "search", "faker", "--registry", server.url)
    asked = place.run(*words)
    server.is_down = True
    again = place.run(*words)
    assert (again.code, again.out) == (0, asked.out)
    assert "it answers 503 Service Unavailable): its last answer is used" in again.err
    assert "hunter22" not in again.err


def test_a_registry_that_cannot_be_kept_is_read_all_the_same(place: Place, server: Server) -> None:
    (place.folder / ".airbyte-proto").mkdir()
    (place.folder / ".airbyte-proto" / "registry").write_text("no folder")
    result = place.run("connectors", "search", "faker", "--registry", server.url)
    assert (result.code, "source-faker" in result.out) == (0, True)
    assert "WARN the connector registry is not kept in " in result.err
