"""Staging straight into S3: what is there while a file is written, what is left when it is given up, what is told."""

import random
import socket
from collections.abc import Callable

import pyarrow.parquet as pq
import pytest

from dagster_airbyte_proto.errors import StagingError
from dagster_airbyte_proto.loads.load import StagedFile, StagedRows
from dagster_airbyte_proto.loads.object_stores import s3
from dagster_airbyte_proto.loads.storage import Storage
from dagster_airbyte_proto.loads.table import TableTarget
from dagster_airbyte_proto.model import PlannedStream
from dagster_airbyte_proto.schema.json_schema import table_columns
from dagster_airbyte_proto.staging.files.staging_folder import remove_orphan_files, run_staging_folder
from dagster_airbyte_proto.staging.inputs import RunInput, StreamInput
from dagster_airbyte_proto.staging.lines.demux import RecordLines
from dagster_airbyte_proto.staging.stage import Stage, StageLimits
from tests.staging.conftest import SHAPE, plan, records, with_field_ids
from tests.support.object_stores.s3 import ObjectStore

pytestmark = pytest.mark.timeout(60, func_only=True)  # Not with the start of the store.
_USERS = plan({"id": {"type": "integer"}, "text": {"type": "string"}})


@pytest.fixture
def bucket(object_store: ObjectStore) -> str:
    return object_store.new_bucket()


def target_in(bucket: str, storage: Storage) -> TableTarget:
    """A table whose name has what URIs have another way to write."""
    schema = with_field_ids(table_columns(_USERS).schema)
    return TableTarget(_USERS.table, schema, f"s3://{bucket}/ware house/50%25/ü/users", "users", storage=storage)


def stage_in(target: TableTarget, **limits: int) -> Stage:
    return Stage(
        [StreamInput(_USERS, table_columns(_USERS), target)],
        RunInput(SHAPE, "r1", sync_id=7),
        limits=StageLimits(**limits),
    )


def run_of(rows: int, text: Callable[[int], str] = str, first: int = 0) -> RecordLines:
    return RecordLines(
        b'"users"', None, records([{"id": n, "text": text(n)} for n in range(first, first + rows)]), rows
    )


def cut(stage: Stage, planned: PlannedStream = _USERS) -> StagedRows:
    stage.mark(planned.id)
    part = stage.cut(planned.id)
    assert part is not None
    return part


def test_a_file_is_there_once_it_is_whole_and_is_called_as_its_table_spells_it(
    object_store: ObjectStore, bucket: str
) -> None:
    target = target_in(bucket, object_store.storage)
    stage = stage_in(target, segment_bytes=1, held_bytes=1)
    stage.add(run_of(10))
    assert object_store.keys(bucket) == []
    part = cut(stage)
    [file] = part.files
    folder = run_staging_folder(target, "r1")
    assert file.path.startswith(f"{folder}/rows-")
    assert object_store.keys(bucket) == [file.path.removeprefix(f"s3://{bucket}/")]
    filesystem, path = object_store.storage.at(file.path)
    assert pq.read_table(path, filesystem=filesystem)["id"].to_pylist() == list(range(10))
    assert filesystem.get_file_info(path).size == file.size_bytes
    stage.close()
    assert len(object_store.keys(bucket)) == 1


def test_a_large_file_is_uploaded_in_parts_while_it_grows_and_is_no_object_before_its_end(
    object_store: ObjectStore, bucket: str
) -> None:
    stage = stage_in(target_in(bucket, object_store.storage), segment_bytes=8 << 20, held_bytes=1)
    chance = random.Random(7)
    for number in range(4):
        stage.add(run_of(100, lambda _: chance.randbytes(50_000).hex(), first=number * 100))
    assert (object_store.keys(bucket), len(object_store.uploads(bucket))) == ([], 1)
    part = cut(stage)
    assert sum(file.rows for file in part.files) == 400
    assert (len(object_store.keys(bucket)), object_store.uploads(bucket)) == (len(part.files), [])


def test_what_is_given_up_is_gone(object_store: ObjectStore, bucket: str) -> None:
    stage = stage_in(target_in(bucket, object_store.storage), segment_bytes=1, held_bytes=1)
    stage.add(run_of(10))
    cut(stage)
    kept = set(object_store.keys(bucket))
    stage.add(run_of(10))
    stage.mark(_USERS.id)
    stage.add(run_of(10))
    stage.close()
    assert {key for key in object_store.keys(bucket) if not key.endswith("/")} == kept


def test_removing_orphan_files_leaves_the_listed_ones(object_store: ObjectStore, bucket: str) -> None:
    target = target_in(bucket, object_store.storage)
    stage = stage_in(target)
    files: list[StagedFile] = []
    for _ in range(3):
        stage.add(run_of(2))
        files += cut(stage).files
    folder = run_staging_folder(target, "r1")
    assert remove_orphan_files(folder, [files[1].path], object_store.storage) == 2
    assert [key for key in object_store.keys(bucket) if not key.endswith("/")] == [files[1].path.split("/", 3)[3]]
    assert remove_orphan_files(folder, [], object_store.storage) == 1
    assert not any("run-r1" in key for key in object_store.keys(bucket))
    assert remove_orphan_files(folder, [], object_store.storage) == 0


def refused(storage: Storage, bucket: str) -> StagingError:
    stage = stage_in(target_in(bucket, storage))
    stage.add(run_of(2))
    with pytest.raises(StagingError) as caught:
        cut(stage)
    return caught.value


def test_credentials_that_are_refused_are_an_error_that_does_not_tell_them(
    object_store: ObjectStore, bucket: str
) -> None:
    wrong = {**object_store.settings, "s3.access-key-id": "AKIAWRONG", "s3.secret-access-key": "hunter2hunter2"}
    error = refused(Storage(wrong), bucket)
    assert "credentials" in error.remedy
    assert error.retryable
    for secret in ("AKIAWRONG", "hunter2", object_store.secret_key):
        assert secret not in str(error) + repr(target_in(bucket, Storage(wrong)))


def test_a_store_that_does_not_answer_is_an_error_before_long(
    object_store: ObjectStore, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "_ATTEMPTS", 3)  # Six take half a minute.
    with socket.socket() as closed:  # bound, and not listening
        closed.bind(("127.0.0.1", 0))
        nobody = {**object_store.settings, "s3.endpoint": f"http://127.0.0.1:{closed.getsockname()[1]}"}
        assert bucket in refused(Storage(nobody), bucket).found


def test_a_bucket_that_is_not_there_is_an_error_that_names_it(object_store: ObjectStore) -> None:
    assert "no-such-bucket" in refused(object_store.storage, "no-such-bucket").found
