"""The recorded seconds of each test: `python -m tests.support.durations build/tests.xml` writes those of a report anew.

They order the files of a run, longest first, and say which tests are too slow for `make quick`.
"""

import json
import sys
import zlib
from pathlib import Path
from xml.etree import ElementTree

_ROOT = Path(__file__).parents[2]
RECORD = _ROOT / "tests" / "durations.json"

# Shorter ones are noise, and there are thousands of them: `make quick` runs them all.
_LEAST_SECONDS = 0.3
# Files that use one server for all of a process, which takes a JVM to start.
_SHARING = {
    "tests/tables/iceberg/connect/test_lost_servers.py": "a Spark Connect server",
    "tests/tables/iceberg/connect/test_pushes.py": "a Spark Connect server",
    "tests/tables/iceberg/connect/test_syncs.py": "a Spark Connect server",
    "tests/tables/iceberg/catalogs/test_silent_catalogs.py": "a REST catalog",
    "tests/tables/iceberg/test_catalogs.py": "a REST catalog",
}
# Files that take one worker longer than all others take for the rest, in so many parts. Their tests share nothing.
_DIVIDED = {
    "tests/simulation/test_spark_tables.py": 7,
    "tests/sync/push/test_push_faults.py": 6,
    "tests/sync/relay/test_relay_faults.py": 3,
}


def work_unit(node_id: str) -> str:
    """Tests with the same one are run by one worker, one after the other: those of a file, or of several files that
    share what takes long to start, or of a part of a file."""
    path = node_id.partition("::")[0]
    if parts := _DIVIDED.get(path):
        return f"{path}, part {zlib.crc32(node_id.encode()) % parts}"
    return _SHARING.get(path, path)


def recorded() -> dict[str, float]:
    """Seconds by the test's id, for tests that take long enough to matter."""
    durations: dict[str, float] = json.loads(RECORD.read_text())
    return durations


def merged(before: dict[str, float], report: Path) -> dict[str, float]:
    """The seconds of the tests in a JUnit report, under the ids that pytest gives them; those of others as before."""
    seconds = dict(before)
    for case in ElementTree.parse(report).iter("testcase"):
        # One that was skipped took no time, and says nothing about the next time.
        if case.find("skipped") is None:
            seconds[f"{case.attrib['classname']}::{case.attrib['name']}"] = round(float(case.attrib["time"]), 1)
    return {name: each for name, each in sorted(seconds.items()) if each >= _LEAST_SECONDS and _file_is_there(name)}


def _file_is_there(name: str) -> bool:
    """An id has the classes of a test after its module."""
    parts = name.partition("::")[0].split(".")
    return any((_ROOT.joinpath(*parts[:count]).with_suffix(".py")).is_file() for count in range(len(parts), 0, -1))


def junit_id(node_id: str) -> str:
    """The id under which a JUnit report has a test."""
    path, _, names = node_id.partition("::")
    parts, bracket, parameters = names.partition("[")
    *classes, name = parts.split("::")
    return f"{'.'.join([path.removesuffix('.py').replace('/', '.'), *classes])}::{name}{bracket}{parameters}"


if __name__ == "__main__":
    RECORD.write_text(json.dumps(merged(recorded(), Path(sys.argv[1])), indent=0) + "\n")
