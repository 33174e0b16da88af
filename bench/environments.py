"""The peers' own environments: pinned, built once, kept under `.bench/environments`.

A folder's name has a digest of its pins, so a new pin makes a new folder. It is built beside its place and moved there
once it is complete, so an interrupted build leaves nothing that looks finished. `uv` builds them if it is installed.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

PINS = {
    "pyairbyte": ("airbyte==0.71.3", "duckdb==1.4.3"),
    "dlt": ("dlt[parquet]==1.31.0", "pyarrow==26.0.1", "orjson==3.13.0"),
    "target-csv": ("meltanolabs-target-csv==0.5.0", "singer-sdk==0.54.9"),
    # A newer duckdb takes the first row of each batch for a header, so that row is lost.
    "target-duckdb": ("target-duckdb==0.8.0", "duckdb==1.0.0"),
    "target-jsonl": ("target-jsonl==0.1.4",),
    # The script of those who have no tool.
    "script": ("pandas==3.1.1", "pyarrow==26.0.1", "orjson==3.13.0"),
    "drt": ("drt-core==1.2.1", "duckdb==1.4.3"),
    "source-faker": ("airbyte-source-faker==7.2.1",),
}


def python_of(name: str, cache: Path) -> Path:
    """The environment's interpreter; builds it when it is not there yet. Raises CalledProcessError."""
    digest = hashlib.sha256("\n".join((*PINS[name], sys.version)).encode()).hexdigest()[:12]
    place = cache / f"{name}-{digest}"
    if not place.exists():
        cache.mkdir(parents=True, exist_ok=True)
        # Scripts have the absolute path of their interpreter, so a link is moved into place and not the folder itself.
        building = cache / f"{place.name}.files"
        shutil.rmtree(building, ignore_errors=True)
        _build(building, PINS[name])
        place.symlink_to(building.name, target_is_directory=True)
    return place / "bin" / "python"


def _build(folder: Path, pins: tuple[str, ...]) -> None:
    print(f"bench: building {folder.name}: {' '.join(pins)}", file=sys.stderr)
    if uv := shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"):
        _run(uv, "venv", "--quiet", "--python", sys.executable, str(folder))
        # Compiled, as pip does it. Otherwise the first start of a peer compiles them (3 s of CPU for PyAirbyte).
        _run(uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(folder / "bin" / "python"), *pins)
    else:
        _run(sys.executable, "-m", "venv", str(folder))
        _run(str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *pins)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr)
