"""What lacks is skipped, and fails where it was got ready."""

import re
from pathlib import Path

import pytest

from tests.support.needs import NEEDED, lacks

_ROOT = Path(__file__).parents[2]
# These skip what a table format does not have, and what a version of npm keeps elsewhere: no machine can offer it.
_MAY_SKIP = {
    "tests/support/needs.py",
    "tests/support/test_needs.py",
    "tests/conformance/table_branches.py",
    "tests/conformance/table_writer.py",
    "tests/launchers/npm/test_version_ranges.py",
    "tests/sync/read/test_schema_messages.py",
}


def test_what_lacks_skips_its_tests_but_not_where_it_was_got_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NEEDED, "docker-registry")
    with pytest.raises(pytest.skip.Exception, match="no Docker engine: gone"):
        lacks("docker", "no Docker engine: gone")
    monkeypatch.setenv(NEEDED, "docker docker-registry")
    with pytest.raises(pytest.fail.Exception, match="says that there is docker, but: no Docker engine: gone"):
        lacks("docker", "no Docker engine: gone")


def test_ci_gets_ready_or_names_whatever_a_test_may_lack() -> None:
    """Else it would be skipped there, and nobody would know."""
    texts = {str(path.relative_to(_ROOT)): path.read_text() for path in (_ROOT / "tests").rglob("*.py")}
    words = {word for text in texts.values() for word in re.findall(r"lacks\(\s*f?\"([^\"{]+)", text)}
    said = "\n".join(path.read_text() for path in (_ROOT / ".ci").iterdir())
    assert words
    assert [word for word in sorted(words) if not re.search(rf"(there|echo|\+)[^\n]*\b{word}", said)] == []
    assert {name for name, text in texts.items() if "pytest.skip(" in text} <= _MAY_SKIP
