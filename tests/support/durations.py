"""The recorded seconds of each test: `python -m tests.support.durations build/tests.xml` writes them anew.

They order the files of a run, longest first, and say which tests are too slow for `make quick`.
"""

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

RECORD = Path(__file__).parents[1] / "durations.json"

# Shorter ones are noise, and there are thousands of them.
_LEAST_SECONDS = 0.3


def recorded() -> dict[str, float]:
    """Seconds by the test's id, for tests that take long enough to matter."""
    durations: dict[str, float] = json.loads(RECORD.read_text())
    return durations


def seconds_of(report: Path) -> dict[str, float]:
    """The seconds of the tests in a JUnit report, under the ids that pytest gives them."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        seconds = float(case.attrib["time"])
        if seconds >= _LEAST_SECONDS:
            found[f"{case.attrib['classname']}::{case.attrib['name']}"] = round(seconds, 1)
    return dict(sorted(found.items()))


def junit_id(node_id: str) -> str:
    """The id under which a JUnit report has a test."""
    path, _, names = node_id.partition("::")
    parts, bracket, parameters = names.partition("[")
    *classes, name = parts.split("::")
    return f"{'.'.join([path.removesuffix('.py').replace('/', '.'), *classes])}::{name}{bracket}{parameters}"


if __name__ == "__main__":
    RECORD.write_text(json.dumps(seconds_of(Path(sys.argv[1])), indent=0) + "\n")
