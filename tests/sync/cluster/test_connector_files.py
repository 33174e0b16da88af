"""The files of connectors reach executors that have none of them, once, and are what the driver read."""

import os
import stat
from pathlib import Path

import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError, StagingError
from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.cluster.connector_files import (
    MAX_FILE_BYTES,
    CachedFiles,
    FilesOfDriver,
    SyncFiles,
    check_files_folder,
)
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.run import sync_connection
from dagster_airbyte_proto.tables.tasks import Task
from dagster_airbyte_proto.testing.folder.process_tasks import ProcessTasks
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.cli.components.test_component_syncs import CONFIG
from tests.support.wasm import guests
from tests.sync.cluster.conftest import Serving
from tests.sync.conftest import OpenShop
from tests.sync.shop import descriptors


class _Counted:
    """The files of a sync, and how many parts of them were fetched."""

    def __init__(self, files: FilesOfDriver) -> None:
        self._files = files
        self.parts = 0

    def part(self, digest: str, offset: int) -> bytes:
        self.parts += 1
        return self._files.part(digest, offset)


class _Sent:
    """A component on the driver, and the cache of a machine that has nothing of it."""

    def __init__(self, folder: Path, serving: Serving, content: bytes) -> None:
        self.path = folder / "source.wasm"
        self.path.write_bytes(content)
        launch = {"kind": "wasm", "path": str(self.path)}
        document = {"name": "shop", "connector": {"protocol": "rapidbyte", "launch": launch}}
        files = SyncFiles(Connection.model_validate(document), {})
        self.path.unlink()
        self.driver = _Counted(files)
        self.home = folder / "executor"
        stub = serving.stub(self.driver, FilesOfDriver)
        self.cache = CachedFiles(self.home, files.by_path, stub)

    def kept(self) -> Path:
        [kept] = (self.home / "connector_files").iterdir()
        return kept


@pytest.fixture
def content() -> bytes:
    return os.urandom(9 << 20)  # Of more than two parts.


@pytest.fixture
def sent(tmp_path: Path, serving: Serving, content: bytes) -> _Sent:
    return _Sent(tmp_path, serving, content)


def test_a_file_comes_once_into_a_private_folder(sent: _Sent, content: bytes) -> None:
    assert [sent.cache.read(sent.path) for _ in range(2)] == [content] * 2
    assert sent.driver.parts == 3
    kept = sent.kept()
    assert [stat.S_IMODE(each.stat().st_mode) for each in (kept.parent, kept)] == [0o700, 0o600]


@pytest.mark.parametrize("fault", ["another byte", "cut off", "a link"])
def test_what_is_not_what_the_driver_read_is_fetched_again(sent: _Sent, content: bytes, fault: str) -> None:
    sent.cache.read(sent.path)
    kept = sent.kept()
    if fault == "a link":
        kept.rename(sent.path.parent / "theirs")
        kept.symlink_to(sent.path.parent / "theirs")
    else:
        kept.write_bytes(content[:-1] + (b"" if fault == "cut off" else bytes([content[-1] ^ 1])))
    assert sent.cache.read(sent.path) == content
    assert (sent.driver.parts, sent.kept().is_symlink(), sent.kept().read_bytes() == content) == (6, False, True)


def test_a_file_that_the_driver_does_not_have_is_missing_there_too(sent: _Sent) -> None:
    own = sent.path.parent / "components.py"
    own.write_text("of this machine")
    with pytest.raises(FileNotFoundError):
        sent.cache.read(own)


def test_what_no_sync_reads_any_more_goes_when_the_next_file_comes(sent: _Sent) -> None:
    sent.cache.read(sent.path)
    kept = sent.kept()
    os.utime(kept, (0, 0))
    sent.cache.read(sent.path)
    assert kept.stat().st_mtime > 0  # A use.
    young, unused = "a" * 64, "b" * 64
    for name in (young, unused, f"{unused}.{'c' * 16}", "of-somebody-else"):
        kept.with_name(name).touch()
        if name != young:
            os.utime(kept.with_name(name), (0, 0))
    os.truncate(kept, 1)
    sent.cache.read(sent.path)
    assert {each.name for each in kept.parent.iterdir()} == {kept.name, young, "of-somebody-else"}


def test_a_link_in_the_place_of_the_cache_is_refused(sent: _Sent, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o755)
    sent.home.mkdir()
    (sent.home / "connector_files").symlink_to(theirs)
    for use in (lambda: sent.cache.read(sent.path), lambda: check_files_folder(sent.home)):
        with pytest.raises(StagingError, match="connector_files cannot be used: it is a link"):
            use()
    assert (list(theirs.iterdir()), stat.S_IMODE(theirs.stat().st_mode)) == ([], 0o755)


def test_a_folder_in_the_place_of_a_file_is_named_and_leaves_nothing_open(sent: _Sent) -> None:
    sent.cache.read(sent.path)
    kept = sent.kept()
    kept.unlink()
    kept.mkdir()
    before = _opened_in(sent.home)
    for _ in range(3):
        with pytest.raises(StagingError, match=rf"connector_files cannot be used: {kept} is a folder"):
            sent.cache.read(sent.path)
    assert _opened_in(sent.home) <= before
    assert list(kept.parent.iterdir()) == [kept]


def _opened_in(folder: Path) -> set[tuple[str, str]]:
    return {each for each in descriptors() if Path(each[1]).is_relative_to(folder)}


def test_a_cache_that_cannot_be_written_is_named(sent: _Sent) -> None:
    sent.home.write_text("a file")
    for use in (lambda: sent.cache.read(sent.path), lambda: check_files_folder(sent.home)):
        with pytest.raises(StagingError, match=r"connector_files cannot be used: Not a directory"):
            use()


def test_a_file_that_is_too_large_is_refused_on_the_driver(tmp_path: Path) -> None:
    path = tmp_path / "huge.wasm"
    path.touch()
    os.truncate(path, MAX_FILE_BYTES + 1)
    launch = {"kind": "wasm", "path": str(path)}
    connection = Connection.model_validate({"name": "shop", "connector": {"protocol": "rapidbyte", "launch": launch}})
    with pytest.raises(ConfigError, match=r"huge\.wasm has more than 256 MiB, the most that is sent to executors"):
        SyncFiles(connection, {})


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_refused_on_the_driver(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "source.wasm"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    launch = {"kind": "wasm", "path": str(path)}
    connection = Connection.model_validate({"name": "shop", "connector": {"protocol": "rapidbyte", "launch": launch}})
    with pytest.raises(ConfigError, match=r"source\.wasm is no regular file"):
        SyncFiles(connection, {})


class _OtherMachines(ProcessTasks):
    """Executors that do not have the driver's files: these are gone before a task begins."""

    def __init__(self, files: tuple[Path, ...]) -> None:
        super().__init__()
        self._files = files

    def run(self, task: Task, count: int, tag: str) -> str:
        for each in self._files:
            each.unlink()
        return super().run(task, count, tag)


def test_components_run_where_their_files_are_not(
    shop: OpenShop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AIRBYTE_PROTO_EXECUTOR_HOME", str(tmp_path / "executor"))
    files = tuple(tmp_path / f"{role}.wasm" for role in ("source", "transform"))
    source, transform = ({"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": str(each)}} for each in files)
    step = {"connector": transform, "config": {"script": "upper"}, "columns": {"name": "string"}, "streams": ["users"]}
    place = shop()
    place.more = {"run_on": "executors", "connector": source, "config": CONFIG, "transforms": [step]}
    place.modes = {"users": {"read": "incremental", "write": "append"}}
    place.offer({})
    tables = FolderTables(place.home / "warehouse", tasks=_OtherMachines(files))
    for expected in ({1: "NAME-1", 2: None, 3: "NAME-3"}, {4: None, 5: "NAME-5"}):
        for each in files:
            each.write_bytes(guests.built(each.stem).read_bytes())
        with Engine(Settings.load(place.home, place.home / "settings.yaml"), tables=tables) as engine:
            report = sync_connection(engine, Connection.from_file(place.connection_file))
        assert report.status == "complete", report
        assert report.streams["users"].committed == len(expected)
        rows = tables.rows(TableName("shop", "users")).to_pylist()
        assert expected.items() <= {row["id"]: row["name"] for row in rows}.items()
    # Each is there once, and compiled once.
    kept = [
        each for each in (tmp_path / "executor").rglob("*") if each.parent.name in ("connector_files", "components")
    ]
    suffixes = ["", "", ".cwasm", ".cwasm", ".lock", ".lock", ".wasm", ".wasm"]
    assert sorted(each.suffix for each in kept) == suffixes
