"""What tests need of the machine beside Python. Where it lacks, they are skipped: a developer need not have it."""

import os
import shutil
import subprocess
from importlib.util import find_spec
from typing import NoReturn

import pytest

NEEDED = "AIRBYTE_PROTO_TESTS_NEED"
"""The variable that names what may not lack, with spaces between: CI has got it ready."""


def lacks(what: str, reason: str) -> NoReturn:
    """Skips the test, or fails it where that is needed."""
    if what in os.environ.get(NEEDED, "").split():
        pytest.fail(f"{NEEDED} says that there is {what}, but: {reason}", pytrace=False)
    pytest.skip(reason)


def require_maven() -> None:
    if shutil.which("mvn") is None or shutil.which("java") is None:
        lacks("maven", "no Maven (Debian: apt-get install maven)")


def require_spark_connect() -> None:
    if not all(find_spec(name) for name in ("grpc", "grpc_status", "zstandard")):
        lacks("spark-connect", "the client of Spark Connect is not installed (extra: connect)")


def require_npm() -> None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        lacks("npm", "no node and npm (Debian: apt-get install nodejs npm)")


def require_bubblewrap() -> None:
    if shutil.which("bwrap") is None:
        lacks("bubblewrap", "no bwrap (Debian: apt-get install bubblewrap)")
    command = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    if tried.returncode:
        lacks("bubblewrap", f"bwrap may not make namespaces here: {tried.stderr.strip()}")
