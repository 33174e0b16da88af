"""Staging into S3 with credentials that are vended for the folder of one table, and expire."""

import time
from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from dagster_airbyte_proto.errors import StagingError
from dagster_airbyte_proto.loads.load import StagedFile
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.loads.vended import RenewedFileSystem
from dagster_airbyte_proto.staging.files.staging_folder import remove_orphan_files, run_staging_folder
from tests.staging.files.test_object_store import cut, run_of, stage_in, target_in
from tests.support.catalogs.vending_catalog import TableKeys
from tests.support.object_stores.s3 import ObjectStore

pytestmark = pytest.mark.timeout(60, func_only=True)  # Not with the start of the store.


class Vendor:
    """A source of credentials, whose old ones expire once there are new ones."""

    def __init__(self, store: ObjectStore, location: str) -> None:
        self.keys, self._location, self.error = TableKeys(store), location, ""
        self.settings = self.keys.new(location, 3600)

    def renew(self) -> None:
        self.keys.expire(self.settings)
        self.settings = self.keys.new(self._location, 3600)

    def settings_at(self, location: str) -> Mapping[str, str]:
        if self.error:
            raise OSError(self.error)
        return self.settings if location.startswith(self._location) else {}


@pytest.fixture
def public(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The settings of the store without credentials, in a process that has none."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return {key: value for key, value in object_store.settings.items() if "key" not in key}


def test_credentials_that_expire_between_the_files_of_a_load_are_renewed(
    object_store: ObjectStore, public: dict[str, str]
) -> None:
    bucket = object_store.new_bucket()
    vendor = Vendor(object_store, target_in(bucket, Storage()).location)
    target = target_in(bucket, Storage(public, vendor))
    stage = stage_in(target, segment_bytes=1, held_bytes=1)
    files: list[StagedFile] = []
    for number in range(2):
        stage.add(run_of(10, first=10 * number))
        files += cut(stage).files
        vendor.renew()
    filesystem, _ = object_store.storage.at(files[0].path)
    rows = [pq.read_table(file.path.removeprefix("s3://"), filesystem=filesystem)["id"] for file in files]
    assert [each.as_py() for column in rows for each in column] == list(range(20))
    folder = run_staging_folder(target, "r1")
    assert remove_orphan_files(folder, [files[1].path], target.storage) == 1


def test_a_file_is_closed_before_its_credentials_expire_though_no_row_comes(
    object_store: ObjectStore, public: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagster_airbyte_proto.loads.storage.MOST_OPEN_SECONDS", 0.05)
    bucket = object_store.new_bucket()
    vendor = Vendor(object_store, target_in(bucket, Storage()).location)
    stage = stage_in(target_in(bucket, Storage(public, vendor)), segment_bytes=1, held_bytes=1)
    for number in range(2):
        stage.add(run_of(10, first=10 * number))
        time.sleep(0.1)
        stage.close_old_files()
        vendor.renew()
    stage.add(run_of(10, first=20))
    files = cut(stage).files
    filesystem, _ = object_store.storage.at(files[0].path)
    rows = [pq.read_table(file.path.removeprefix("s3://"), filesystem=filesystem)["id"] for file in files]
    assert [column.to_pylist() for column in rows] == [[*range(first, first + 10)] for first in (0, 10, 20)]


def test_expired_credentials_that_nobody_renews_stop_the_load(
    object_store: ObjectStore, public: dict[str, str]
) -> None:
    bucket = object_store.new_bucket()
    vendor = Vendor(object_store, target_in(bucket, Storage()).location)
    target = target_in(bucket, Storage(public, vendor))
    vendor.keys.expire(vendor.settings)
    stage = stage_in(target, segment_bytes=1, held_bytes=1)
    with pytest.raises(StagingError, match="credentials") as caught:
        stage.add(run_of(10))
        cut(stage)
    assert not [value for value in vendor.settings.values() if value in str(caught.value)]
    assert object_store.keys(bucket) == []


def test_a_catalog_that_does_not_answer_is_a_staging_error(object_store: ObjectStore, public: dict[str, str]) -> None:
    bucket = object_store.new_bucket()
    vendor = Vendor(object_store, target_in(bucket, Storage()).location)
    vendor.error = "renewing the credentials: connection refused"
    stage = stage_in(target_in(bucket, Storage(public, vendor)), segment_bytes=1, held_bytes=1)
    with pytest.raises(StagingError, match="connection refused"):
        stage.add(run_of(10))
        cut(stage)


def test_credentials_are_good_for_their_folder_only(object_store: ObjectStore, public: dict[str, str]) -> None:
    """So a storage that took another table's would be refused: what the tests of the catalog rely on."""
    place = f"s3://{object_store.new_bucket()}/users"
    storage = Storage({**public, **Vendor(object_store, place).settings})
    for location, is_allowed in ((f"{place}/data/a", True), (f"{place}s/data/a", False)):
        filesystem, path = storage.at(location)
        try:
            with filesystem.open_output_stream(path) as stream:
                stream.write(b"x")
        except OSError as error:
            assert "denied" in str(error).lower()
            written = False
        else:
            written = True
        assert written is is_allowed, location


def test_a_session_token_of_ours_is_not_sent_with_a_vended_key(
    object_store: ObjectStore, public: dict[str, str]
) -> None:
    place = f"s3://{object_store.new_bucket()}/users"

    class Keys:
        def settings_at(self, _: str) -> Mapping[str, str]:
            return {each: object_store.settings[each] for each in ("s3.access-key-id", "s3.secret-access-key")}

    storage = Storage({**public, "fs.s3a.session.token": "ours", "s3.session-token": "ours"}, Keys())
    filesystem, path = storage.at(f"{place}/a")
    with filesystem.open_output_stream(path) as stream:
        stream.write(b"x")
    assert object_store.keys(place.split("/")[2]) == ["users/a"]


def test_the_file_system_that_renews_is_complete(tmp_path: Path) -> None:
    filesystem = fs.PyFileSystem(RenewedFileSystem(fs.LocalFileSystem))
    folder = f"{tmp_path}/a"
    filesystem.create_dir(f"{folder}/b", recursive=True)  # nothing: an object store has no folders
    Path(folder, "b").mkdir(parents=True)
    with filesystem.open_output_stream(f"{folder}/b/one.gz") as stream:
        stream.write(b"text")
    with filesystem.open_append_stream(f"{folder}/b/plain") as stream:
        stream.write(b"more")
    filesystem.copy_file(f"{folder}/b/one.gz", f"{folder}/b/two.gz")
    filesystem.move(f"{folder}/b/two.gz", f"{folder}/b/three.gz")
    with filesystem.open_input_stream(f"{folder}/b/three.gz") as stream:
        assert stream.read() == b"text"
    with filesystem.open_input_file(f"{folder}/b/plain") as file:
        assert file.read() == b"more"
    found = filesystem.get_file_info(fs.FileSelector(folder, recursive=True))
    assert sorted(info.base_name for info in found) == ["b", "one.gz", "plain", "three.gz"]
    filesystem.delete_file(f"{folder}/b/plain")
    filesystem.delete_dir_contents(f"{folder}/b")
    filesystem.delete_dir(folder)
    assert filesystem.get_file_info(folder).type == fs.FileType.NotFound
    with pytest.raises(FileNotFoundError):
        filesystem.open_input_file(f"{folder}/gone")
    with pytest.raises(NotImplementedError):
        filesystem.delete_dir_contents("", accept_root_dir=True)
