"""The data files of a scan, each with the deletes that apply to it, in the JSON that Iceberg makes of a scan task.

The JSON is one round trip to the JVM for each file. A delete file is described to Iceberg in the same JSON.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec

POSITION_DELETES = "position-deletes"
PARQUET, PUFFIN = "parquet", "puffin"


class PlannedFile(msgspec.Struct, frozen=True, rename="kebab"):
    """A data file. `partition` is in Iceberg's JSON."""

    spec_id: int
    file_path: str
    file_format: str
    record_count: int
    partition: msgspec.Raw


class PlannedDeletes(msgspec.Struct, frozen=True, rename="kebab"):
    """A delete file, or a deletion vector: that has its place in the file, and the data file it belongs to."""

    # Anything else is an error: a vector that is not recognised would be left beside its successor.
    content: Literal["position-deletes", "equality-deletes"]
    file_path: str
    file_format: str
    record_count: int
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size_in_bytes: int | None = None


class AppliedDeletes(msgspec.Struct, frozen=True):
    """Position deletes that apply to a data file, with the JSON by which Iceberg knows them."""

    deletes: PlannedDeletes
    json: str


class NewDeletes(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """The description of position deletes that are to be added, for Iceberg to read. They lie in the partition of the
    data files whose rows they delete."""

    spec_id: int
    partition: msgspec.Raw
    file_path: str
    file_format: str
    file_size_in_bytes: int
    record_count: int
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size_in_bytes: int | None = None

    def json(self) -> str:
        return (_ENCODER.encode(self)[:-1] + _CONTENT).decode()


_ENCODER = msgspec.json.Encoder()
_CONTENT = b',"content":"' + POSITION_DELETES.encode() + b'"}'


class PlannedTask(msgspec.Struct, frozen=True, rename="kebab"):
    """A data file of a scan, and the JSON of each of its delete files."""

    data_file: PlannedFile
    delete_files: tuple[msgspec.Raw, ...] = ()

    @classmethod
    def from_json(cls, text: str) -> "PlannedTask":
        return _TASK.decode(text)

    def position_deletes(self) -> Iterator[AppliedDeletes]:
        """Yields the deletes by position. Deletes by key are left out: they go on to apply."""
        for each in self.delete_files:
            deletes = _DELETES.decode(each)
            if deletes.content == POSITION_DELETES:
                yield AppliedDeletes(deletes, bytes(each).decode())


_TASK = msgspec.json.Decoder(PlannedTask)
_DELETES = msgspec.json.Decoder(PlannedDeletes)
