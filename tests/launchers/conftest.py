import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.containers.images import Image, python_image
from tests.support.npm_registry import NpmRegistry, running_registry, use_registry

FAKE_CONNECTOR = Path(__file__).parent / "fake_connector.py"
IMAGES = ("fake_image", "bare_image")
"""What the fixture `image` can be: what a container says goes past the daemon, or through it."""


@pytest.fixture
def runs_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def fake_image() -> Iterator[Image]:
    """The fake connector as an image."""
    with python_image({"/connector.py": FAKE_CONNECTOR}, ["-S", "/connector.py"]) as image:
        yield image


@pytest.fixture
def bare_image() -> Iterator[Image]:
    """The same without a shell: all that it says passes through the daemon."""
    with python_image({"/connector.py": FAKE_CONNECTOR}, ["-S", "/connector.py"], has_shell=False) as image:
        yield image


@pytest.fixture
def image(request: pytest.FixtureRequest) -> Image:
    """Either; it is told which by its name."""
    found: Image = request.getfixturevalue(request.param)
    return found


def write_wheel(
    folder: Path, name: str, scripts: str, *, version: str = "1.0", requires: str = "", python: str = ""
) -> None:
    """A package, installable with no index, whose programs are the fake connector."""
    module = name.replace("-", "_")
    about = f"{module}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(
            f"{module}.py", f"{FAKE_CONNECTOR.read_text()}\n\ndef run() -> None:\n    globals()[sys.argv[1]]()\n"
        )
        needs = f"Requires-Dist: {requires}\n" if requires else ""
        needs += f"Requires-Python: {python}\n" if python else ""
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{about}/entry_points.txt", f"[console_scripts]\n{scripts}\n")
        wheel.writestr(f"{about}/RECORD", "")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that uv and pip install from, and from nowhere else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    write_wheel(folder, "airbyte-source-fake", "source-fake = airbyte_source_fake:run")
    write_wheel(folder, "airbyte-cdk", "source-declarative-manifest = airbyte_cdk:run\nother = airbyte_cdk:run")
    return folder


# Node cannot become another program. So this one starts the fake connector, leaves it the pipes, and ends as it does.
_FAKE_SCRIPT = f"""
const program = require("node:child_process").spawn(
  {sys.executable!r}, ["-S", {str(FAKE_CONNECTOR)!r}, ...process.argv.slice(2)], {{stdio: "inherit"}});
for (const pipe of [0, 1]) require("node:fs").closeSync(pipe);
process.on("SIGTERM", () => {{}});
program.on("exit", (code, signal) => {{
  if (signal === null) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
}});
"""


@pytest.fixture
def npm_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NpmRegistry]:
    """A registry that npm installs from, and from nowhere else. It has the fake connector as a package."""
    with running_registry() as registry:
        use_registry(registry, tmp_path, monkeypatch)
        registry.add("@acme/source-fake", "1.0.0", {"dist/index.js": _FAKE_SCRIPT}, main="dist/index.js")
        yield registry
