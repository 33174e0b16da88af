"""The peers' own environments: pinned, built once, kept under `.bench/environments`.

A folder's name carries a digest of its pins, so a new pin is a new folder. It is built beside its place and moved in
when it is whole; an interrupted build leaves nothing that looks finished. `uv` builds them where there is one.
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
    # With a newer duckdb it loses the first row of each batch, which that takes for a header.
    "target-duckdb": ("target-duckdb==0.8.0", "duckdb==1.0.0"),
    "target-jsonl": ("target-jsonl==0.1.4",),
    "source-faker": ("airbyte-source-faker==7.2.1",),
}


def python_of(name: str, cache: Path) -> Path:
    """The environment's interpreter; builds it when it is not there yet. Raises CalledProcessError."""
    digest = hashlib.sha256("\n".join((*PINS[name], sys.version)).encode()).hexdigest()[:12]
    place = cache / f"{name}-{digest}"
    if not place.exists():
        cache.mkdir(parents=True, exist_ok=True)
        # Scripts carry the absolute path of their interpreter: so a link is moved into place, not the folder itself.
        building = cache / f"{place.name}.files"
        shutil.rmtree(building, ignore_errors=True)
        _build(building, PINS[name])
        place.symlink_to(building.name, target_is_directory=True)
    return place / "bin" / "python"


def _build(folder: Path, pins: tuple[str, ...]) -> None:
    print(f"bench: building {folder.name}: {' '.join(pins)}", file=sys.stderr)
    if uv := shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"):
        _run(uv, "venv", "--quiet", "--python", sys.executable, str(folder))
        # Compiled, as pip leaves them: else the first start of a peer pays for it (3 s of CPU for PyAirbyte).
        _run(uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(folder / "bin" / "python"), *pins)
    else:
        _run(sys.executable, "-m", "venv", str(folder))
        _run(str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *pins)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr)
