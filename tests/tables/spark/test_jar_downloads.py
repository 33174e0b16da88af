import os
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.tables.spark.jvm.jar_downloads import download_lock, named_packages


def config(folder: Path, name: str, *, is_here: bool) -> dict[str, str]:
    """Of a session with one package, that Ivy has in its cache or has not."""
    settings = {"spark.jars.packages": f"org.lake:{name}:1.0", "spark.jars.ivy": str(folder / "i vy")}
    [package] = named_packages(settings)
    jar = folder / "i vy" / "cache" / package.group / name / "jars" / f"{name}-1.0.jar"
    if is_here:
        jar.parent.mkdir(parents=True)
        jar.touch()
    return settings


class Start:
    """A JVM's start in another process, as the lock sees it: each has a descriptor of its own."""

    def __init__(self, pool: ThreadPoolExecutor, cache: Path, settings: dict[str, str]) -> None:
        self.began, self._end, self.given_up = threading.Event(), threading.Event(), threading.Event()
        self.ran: Future[None] = pool.submit(self._run, cache, settings)

    def _run(self, cache: Path, settings: dict[str, str]) -> None:
        with download_lock(cache, settings, self.given_up):
            self.began.set()
            assert self._end.wait(120)

    def end(self) -> None:
        self._end.set()


def test_one_process_downloads_and_those_that_have_all_wait_for_it(tmp_path: Path) -> None:
    missing, here = config(tmp_path, "runtime", is_here=False), config(tmp_path, "delta", is_here=True)
    with ThreadPoolExecutor() as pool:
        first = Start(pool, tmp_path / "ca che", missing)
        assert first.began.wait(60)
        others = [Start(pool, tmp_path / "ca che", settings) for settings in (missing, here, here)]
        assert not any(other.began.wait(0.3) for other in others)
        first.end()
        for other in others:
            other.end()
        for each in (first, *others):
            each.ran.result(60)


def test_those_that_download_nothing_start_together(tmp_path: Path) -> None:
    here = config(tmp_path, "runtime", is_here=True)
    with ThreadPoolExecutor() as pool:
        starts = [Start(pool, tmp_path, here) for _ in range(3)]
        began_together = [start.began.wait(60) for start in starts]
        for start in starts:
            start.end()
    assert began_together == [True] * 3


def test_a_start_that_waits_can_be_given_up(tmp_path: Path) -> None:
    missing = config(tmp_path, "runtime", is_here=False)
    with ThreadPoolExecutor() as pool:
        first = Start(pool, tmp_path, missing)
        assert first.began.wait(60)
        second = Start(pool, tmp_path, missing)
        second.given_up.set()
        with pytest.raises(ConfigError, match="another process downloaded Spark's jars"):
            second.ran.result(60)
        first.end()


def test_a_cache_that_cannot_be_written_stops_no_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with download_lock(tmp_path / "file", config(tmp_path, "runtime", is_here=False), threading.Event()):
        pass


_SESSION = """
import sys
from pathlib import Path
from dagster_airbyte_proto.tables.spark.session import start_session
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
folder = Path(sys.argv[1])
config = {"spark.driver.memory": "1g", "spark.jars.ivy": str(folder / "ivy")}
start_session(SparkSettings(sys.argv[2], config=config, short_lived=True, cache=folder / "cache"))
"""


@pytest.mark.nightly
@pytest.mark.spark
def test_first_starts_at_once_on_a_machine_without_jars(tmp_path: Path) -> None:
    started = [
        subprocess.Popen([sys.executable, "-c", _SESSION, str(tmp_path), str(tmp_path / name)], stderr=subprocess.PIPE)
        for name in ("a", "b", "c")
    ]
    ended = [(process.communicate(timeout=300)[1], process.returncode) for process in started]
    assert [code for _, code in ended] == [os.EX_OK] * 3, b"\n".join(output for output, _ in ended).decode()[-3000:]
