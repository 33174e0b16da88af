"""Files that a tap may pass to us: those below the folder that its connection names, and no others."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from dagster_airbyte_proto.cli.main import main
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.batch_folder import BatchFolder, open_batch_file, remove_batch_file
from dagster_airbyte_proto.sync.report import SyncStatus
from tests.sync.shop import Shop

OpenShop = Callable[..., Shop]


@pytest.fixture
def tap(shop: OpenShop) -> Shop:
    made = shop()
    made.protocol = "singer"
    return made


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file of the user's, which no connector may touch."""
    path = tmp_path / "outside" / "private.jsonl"
    path.parent.mkdir()
    path.write_text('{"id": 666}\n')
    return path


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    path = tmp_path / "inside"
    path.mkdir()
    return path


def _refusal(tap: Shop, url: str, outside: Path) -> str:
    """Syncs a tap that names the file. Returns the error, after seeing that nothing of the file landed or went."""
    batch = {"batch": [url], "encoding": {"format": "jsonl"}}
    report = tap.sync_of({"streams": {"users": {"records": 3, **batch}}})
    assert (report.status, tap.column("users"), tap.positions()) == (SyncStatus.FAILED, [], {})
    assert outside.exists()
    return str(report.streams["users"].error)


def test_without_a_folder_in_the_connection_no_file_is_read_and_none_removed(tap: Shop, outside: Path) -> None:
    error = _refusal(tap, f"file://{outside}", outside)
    assert "its connection names no folder for them\nSet batch_folder, beside protocol and launch" in error


@pytest.mark.parametrize("written", ["file://{outside}", "{outside}", "file://{inside}/../outside/private.jsonl"])
def test_files_beside_the_folder_are_refused(tap: Shop, inside: Path, outside: Path, written: str) -> None:
    tap.connector_options = {"batch_folder": str(inside)}
    error = _refusal(tap, written.format(inside=inside, outside=outside), outside)
    assert f"private.jsonl is not below {inside}" in error


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_links_out_of_the_folder_are_refused(tap: Shop, inside: Path, outside: Path, linked: str) -> None:
    (inside / "link").symlink_to(outside if linked == "file" else outside.parent)
    tap.connector_options = {"batch_folder": str(inside)}
    url = f"file://{inside}/link" + ("" if linked == "file" else "/private.jsonl")
    assert f"is not below {inside}" in _refusal(tap, url, outside)


def test_a_remote_file_is_refused_where_the_folder_is_local(tap: Shop, inside: Path, outside: Path) -> None:
    tap.connector_options = {"batch_folder": str(inside)}
    assert f"s3://secrets/all.jsonl is not below {inside}" in _refusal(tap, "s3://secrets/all.jsonl", outside)


def test_what_is_no_file_is_not_waited_for(tap: Shop, inside: Path, outside: Path) -> None:
    os.mkfifo(inside / "users.jsonl")
    tap.connector_options = {"batch_folder": str(inside)}
    assert "it is no regular file" in _refusal(tap, f"file://{inside}/users.jsonl", outside)


def test_the_folder_is_by_default_the_connectors_working_folder(tap: Shop, inside: Path) -> None:
    (inside / "users.jsonl").write_text('{"id": 7}\n')
    scenario = {"streams": {"users": {"records": 1, "batch": ["users.jsonl"], "encoding": {"format": "jsonl"}}}}
    tap.offer(scenario)
    text = tap.connection_file.read_text()
    tap.connection_file.write_text(
        text.replace("    kind: local\n", f"    kind: local\n    working_folder: {inside}\n")
    )
    assert tap.sync().status is SyncStatus.COMPLETE
    assert (tap.column("users"), list(inside.iterdir())) == ([0, 7], [])


def test_a_replay_reads_no_file_even_below_the_folder(tap: Shop, outside: Path, tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    tap.offer({"streams": {"users": {"records": 1, "batch": [f"file://{outside}"], "encoding": {"format": "jsonl"}}}})
    assert main(["--home", str(tap.home), "record", str(tap.connection_file), str(recording)]) == 0
    connection = yaml.safe_load(tap.connection_file.read_text())
    launch = {"kind": "replay", "recording": str(recording)}
    connection["connector"] = {"protocol": "singer", "launch": launch, "batch_folder": str(outside.parent)}
    tap.connection_file.write_text(yaml.safe_dump(connection))
    report = tap.sync()
    assert (report.status, tap.column("users"), outside.exists()) == (SyncStatus.FAILED, [], True)
    assert "a replay reads no files" in str(report.streams["users"].error)


@pytest.mark.parametrize(
    ("place", "named", "located"),
    [
        ("s3://lake/in", "s3://lake/in/a/b.jsonl", "s3://lake/in/a/b.jsonl"),
        ("s3://lake/in/?region=eu", "s3://lake/in/b.jsonl?endpoint_override=evil", "s3://lake/in/b.jsonl?region=eu"),
        ("s3://lake/in", "s3://lake/inner/b.jsonl", None),
        ("s3://lake/in", "s3://lake/in/", None),
        ("s3://lake/in", "s3://lake/in/../b.jsonl", None),
        ("s3://lake/in", "s3://lake/in/%2e%2e/b.jsonl", None),
        ("s3://lake/in", "s3://key:secret@lake/in/b.jsonl", None),
        ("s3://lake/in", "file:///etc/passwd", None),
    ],
)
def test_of_a_url_only_the_path_below_the_folder_counts(place: str, named: str, located: str | None) -> None:
    assert BatchFolder(place).locate(named) == located


@pytest.mark.parametrize("replaced", ["file", "folder"])
def test_a_link_that_was_put_there_later_is_neither_read_nor_followed(
    inside: Path, outside: Path, replaced: str
) -> None:
    folder = inside / "deep"
    folder.mkdir()
    (folder / "private.jsonl").write_text("{}\n")
    located = BatchFolder(str(inside)).locate(f"file://{folder}/private.jsonl")
    assert located is not None
    (folder / "private.jsonl").unlink()
    if replaced == "file":
        (folder / "private.jsonl").symlink_to(outside)
    else:
        folder.rmdir()
        folder.symlink_to(outside.parent)
    with pytest.raises(OSError, match=r"symbolic|directory"), open_batch_file(located):
        pass
    if replaced == "folder":
        with pytest.raises(OSError, match="directory"):
            remove_batch_file(located)
    assert outside.exists()


def test_a_folder_is_a_path_or_a_url_of_an_object_store(tmp_path: Path) -> None:
    written = "connector: {protocol: singer, launch: {kind: local, command: [tap]}, batch_folder: %s}\n"
    file = tmp_path / "shop.yaml"
    for place, read in (("out", str(tmp_path / "out")), ("s3://lake/in", "s3://lake/in")):
        file.write_text(written % place)
        assert Connection.from_file(file).connector.batch_folder == read
    file.write_text(written % "file:///tmp")
    with pytest.raises(ConfigError, match="must be a path, or a URL of an object store"):
        Connection.from_file(file)
