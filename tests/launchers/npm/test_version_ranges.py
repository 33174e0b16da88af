"""Ranges of versions, beside those of npm's own library."""

import json
import subprocess
from pathlib import Path

import pytest

from dagster_airbyte_proto.launchers.packages.npm.node import find_npm
from dagster_airbyte_proto.launchers.packages.npm.version_ranges import is_in_range
from tests.support.needs import require_npm


@pytest.mark.parametrize(
    ("wanted", "taken", "refused"),
    [
        (">=18", "18.0.0 20.20.2", "17.9.9"),
        (">= 18.17 <21", "18.17.0 20.9.1", "18.16.9 21.0.0"),
        (">18", "19.0.0", "18.9.9"),
        (">18.1.0", "18.1.1", "18.1.0"),
        ("<=18.1", "18.1.9 4.0.0", "18.2.0"),
        ("<18.1", "18.0.9", "18.1.0"),
        ("^20.9.0 || ^22.11", "20.9.0 22.12.1", "20.8.9 21.0.0 22.10.0 23.0.0"),
        ("^0.10.3", "0.10.4", "0.10.2 0.11.0"),
        ("^0.0.3", "0.0.3", "0.0.4"),
        ("^0", "0.9.0", "1.0.0"),
        ("~20.9", "20.9.3", "20.10.0 20.8.0"),
        ("~20", "20.99.0", "21.0.0 19.0.0"),
        ("16 - 20", "16.0.0 20.99.0", "15.9.9 21.0.0"),
        ("16.1.0 - 20.5.0", "16.1.0 20.5.0", "16.0.9 20.5.1"),
        ("18 || 20.x || =22.1.0", "18.4.0 20.1.1 22.1.0", "19.0.0 22.1.1"),
        ("*", "0.1.0 99.0.0", ""),
        ("", "20.0.0", ""),
        ("v18", "18.1.0", "19.0.0"),
        (">=18.0.0-0", "18.0.0", "17.0.0"),
    ],
)
def test_a_range_takes_its_versions_and_no_others(wanted: str, taken: str, refused: str) -> None:
    assert [each for each in taken.split() if is_in_range(each, wanted) is not True] == []
    assert [each for each in refused.split() if is_in_range(each, wanted) is not False] == []


@pytest.mark.parametrize("wanted", ["latest", ">=", "18.", "node >= 18", "18 - 19 - 20"])
def test_what_is_no_range_is_not_understood(wanted: str) -> None:
    assert is_in_range("20.0.0", wanted) is None


@pytest.mark.nightly
def test_npm_says_the_same(tmp_path: Path) -> None:
    require_npm()
    semver = find_npm().resolve().parents[1] / "node_modules" / "semver"
    if not semver.is_dir():
        pytest.skip(f"this npm keeps its semver elsewhere than {semver}")
    partials = [
        ".".join(map(str, numbers)) for numbers in [(0,), (18,), (0, 9), (18, 1), (0, 0, 3), (0, 2, 3), (18, 1, 2)]
    ]
    comparators = [operator + each for operator in ("", "=", ">", ">=", "<", "<=", "~", "^") for each in partials]
    ranges = [*comparators, *(f"{a} - {b}" for a in partials for b in partials)]
    ranges += [f"{a} {b}" for a in comparators[::5] for b in comparators[::3]]
    ranges += [f"{a} || {b}" for a in comparators[::7] for b in comparators[::4]]
    versions = ["0.0.2", "0.0.3", "0.0.4", "0.2.2", "0.2.3", "0.3.0", "0.9.0", "0.9.9", "0.10.0", "1.0.0", "17.9.9",
                "18.0.0", "18.0.9", "18.1.1", "18.1.2", "18.1.3", "18.2.0", "19.0.0", "20.20.2"]  # fmt: skip
    script = tmp_path / "compare.js"
    script.write_text(
        f"const s = require({json.dumps(str(semver))});\n"
        f"const [ranges, versions] = {json.dumps([ranges, versions])};\n"
        "console.log(JSON.stringify(ranges.map((r) => versions.filter((v) => s.satisfies(v, r)))));\n"
    )
    theirs = json.loads(subprocess.run(["node", script], capture_output=True, check=True).stdout)
    ours = [[version for version in versions if is_in_range(version, each)] for each in ranges]
    assert [(wanted, *pair) for wanted, *pair in zip(ranges, ours, theirs, strict=True) if pair[0] != pair[1]] == []
