"""What lacks is skipped, and fails where it was got ready."""

import pytest

from tests.support.needs import NEEDED, lacks


def test_what_lacks_skips_its_tests_but_not_where_it_was_got_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NEEDED, "docker-registry")
    with pytest.raises(pytest.skip.Exception, match="no Docker engine: gone"):
        lacks("docker", "no Docker engine: gone")
    monkeypatch.setenv(NEEDED, "docker docker-registry")
    with pytest.raises(pytest.fail.Exception, match="says that there is docker, but: no Docker engine: gone"):
        lacks("docker", "no Docker engine: gone")
