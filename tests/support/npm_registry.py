"""A registry of npm on this machine, with packages that tests make. npm installs from it as from any other."""

import base64
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest


class NpmRegistry:
    """The packages, by name and version: what a registry says of them, and their files."""

    def __init__(self) -> None:
        self._about: dict[str, dict[str, dict[str, Any]]] = {}
        self._archives: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.url = ""

    def add(self, name: str, version: str, files: Mapping[str, str], **about: Any) -> None:
        """Publishes a package; one of the same name and version is replaced, as only a mirror or a thief can do."""
        package = {"name": name, "version": version, **about}
        archive = _archive({**files, "package.json": json.dumps(package)})
        path = f"-/{name}-{version}.tgz"
        self._archives[path] = archive
        digest = base64.b64encode(hashlib.sha512(archive).digest()).decode()
        scripts = {"hasInstallScript": True} if "install" in about.get("scripts", {}) else {}
        dist = {"tarball": f"{self.url}/{path}", "integrity": f"sha512-{digest}"}
        self._about.setdefault(name, {})[version] = {**package, **scripts, "dist": dist}

    def answer(self, path: str) -> bytes | None:
        self.requests.append(path)
        if path in self._archives:
            return self._archives[path]
        versions = self._about.get(path)
        if versions is None:
            return None
        return json.dumps({"name": path, "versions": versions, "dist-tags": {"latest": max(versions)}}).encode()


@contextmanager
def running_registry() -> Iterator[NpmRegistry]:
    registry = NpmRegistry()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = registry.answer(unquote(self.path).lstrip("/"))
            self.send_response(404 if content is None else 200)
            self.end_headers()
            self.wfile.write(b"{}" if content is None else content)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        registry.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()


def use_registry(registry: NpmRegistry, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets npm to this registry and no other, with a cache of its own."""
    for name, value in {
        "registry": registry.url,
        "noproxy": "127.0.0.1",
        "cache": str(folder / "npm-cache"),
        "fetch_retries": "0",
        "userconfig": str(folder / "npmrc"),
    }.items():
        monkeypatch.setenv(f"npm_config_{name}", value)


def _archive(files: Mapping[str, str]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    return archive.getvalue()
