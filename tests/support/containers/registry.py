"""A real registry of images with a password, on this machine."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dagster_airbyte_proto.launchers.docker.deployment import ImageRegistry
from tests.support.needs import lacks

_PASSWORD = "hunter22"
_HASH = "$2b$05$UBx22sbKQzJUDFefq5Wt4ezhUBvfGm6cKOMoyDVRCwD.W3e/m6XDO"
_CONFIG = """
version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}/images}}}}
http: {{addr: "127.0.0.1:0"}}
auth: {{htpasswd: {{realm: test, path: {folder}/users}}}}
"""


@contextmanager
def open_registry(folder: Path) -> Iterator[ImageRegistry]:
    """Runs a registry for the block. Skips the test if the program is not installed."""
    program = shutil.which("docker-registry")
    if program is None:
        lacks("docker-registry", "no docker-registry (Debian's package) is installed")
    (folder / "users").write_text(f"us:{_HASH}\n")
    (folder / "registry.yaml").write_text(_CONFIG.format(folder=folder))
    command = [program, "serve", str(folder / "registry.yaml")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        listening = (re.search(r"listening on (127\.0\.0\.1:\d+)", line) for line in process.stderr)
        address = next(found[1] for found in listening if found)
        try:
            yield ImageRegistry(address, "us", _PASSWORD)
        finally:
            process.kill()
