"""What connectors offer, kept on disk, and what changed between two catalogs."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.errors import InternalError, StagingError
from dagster_airbyte_proto.model import Catalog, FieldPath, ReadMode, Stream, StreamId
from dagster_airbyte_proto.sync.connector.answer_cache import Offer, Offers, catalog_changes

SPEC = b'{"type": "SPEC", "spec": {"n": 12345678901234567890, "x": 1.50, "text": "\xc3\xa9"}}'
COMPACT = b'{"type":"SPEC","spec":{"n":12345678901234567890,"x":1.50,"text":"\xc3\xa9"}}'


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_kept_spec_comes_back_with_its_numbers_as_written(tmp_path: Path) -> None:
    Offers(tmp_path).keep_spec("local:source-x@1", SPEC)
    assert Offers(tmp_path).spec("local:source-x@1") == Offer(COMPACT)
    assert Offers(tmp_path).spec("local:source-x@2") == Offer(None)


def test_a_kept_file_is_readable_by_a_person(tmp_path: Path) -> None:
    Offers(tmp_path).keep_spec("pypi:airbyte-source-faker==7.2.1", SPEC)
    (file,) = files(tmp_path)
    assert "source-faker-7-2-1" in file.name
    assert json.loads(file.read_bytes())["identity"] == "pypi:airbyte-source-faker==7.2.1"
    assert file.read_text().count("\n") > 5


@pytest.mark.parametrize("identity", ["../../etc/passwd", "/", "a\0b", "ä" * 500, "", "CON", "."])
def test_any_identity_makes_a_safe_name(tmp_path: Path, identity: str) -> None:
    offers = Offers(tmp_path / "catalogs")
    offers.keep_spec(identity, b"{}")
    assert offers.spec(identity) == Offer(b"{}")
    assert [file.parent for file in files(tmp_path)] == [tmp_path / "catalogs" / "cached"]


def test_a_catalog_belongs_to_one_identity_and_one_config(tmp_path: Path) -> None:
    offers = Offers(tmp_path)
    offers.keep_catalog("shop", "x@1", "digest", b'{"streams":[]}')
    assert offers.catalog("shop", "x@1", "digest") == Offer(b'{"streams":[]}')
    others = [("shop", "x@2", "digest"), ("shop", "x@1", "other"), ("stall", "x@1", "digest")]
    assert [offers.catalog(*other) for other in others] == [Offer(None)] * 3


def test_a_new_catalog_takes_the_place_of_the_old(tmp_path: Path) -> None:
    offers = Offers(tmp_path)
    for identity in ("x@1", "x@2"):
        offers.keep_catalog("shop", identity, "digest", b"{}")
    assert offers.catalog("shop", "x@2", "digest") == Offer(b"{}")
    assert len(files(tmp_path)) == 1


def test_a_saved_catalog_stands_under_the_name_of_its_connection(tmp_path: Path) -> None:
    offers = Offers(tmp_path / "catalogs")
    assert offers.saved_catalog("shop") == Offer(None)
    path = offers.save_catalog("shop", b'{"streams":[]}')
    assert path == tmp_path / "catalogs" / "shop.json"
    assert json.loads(path.read_text()) == {"streams": []}
    assert offers.saved_catalog("shop") == Offer(b'{"streams":[]}')
    with pytest.raises(InternalError):
        offers.save_catalog("../shop", b"{}")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"identity": "x"}', b"\xff\xfe", b'{"identity":"x","message":{]}']
)
def test_a_corrupt_file_counts_as_absent_and_is_told(tmp_path: Path, content: bytes) -> None:
    offers = Offers(tmp_path)
    offers.keep_spec("x", SPEC)
    (file,) = files(tmp_path)
    file.write_bytes(content)
    message, warning = offers.spec("x")
    assert message is None
    assert str(file) in warning
    offers.keep_spec("x", SPEC)
    assert offers.spec("x") == Offer(COMPACT)


def test_a_corrupt_saved_catalog_and_a_folder_in_its_place_are_told(tmp_path: Path) -> None:
    (tmp_path / "shop.json").write_text("{")
    (tmp_path / "stall.json").mkdir()
    assert "shop.json" in Offers(tmp_path).saved_catalog("shop").warning
    assert "Is a directory" in Offers(tmp_path).saved_catalog("stall").warning


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "shop.json").mkdir()
    with pytest.raises(StagingError) as error:
        Offers(tmp_path).save_catalog("shop", b"{}")
    assert "shop.json" in str(error.value)
    assert os.listdir(tmp_path) == ["shop.json"]  # noqa: PTH208  the names, hidden ones too


def test_a_saved_catalog_may_be_read_by_whoever_may_read_other_files(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    path = Offers(tmp_path).save_catalog("shop", b"{}")
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_what_is_no_json_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(InternalError):
        Offers(tmp_path).keep_spec("x", b'{"a": ')
    assert files(tmp_path) == []


def stream(name: str, columns: Mapping[str, Any], *, key: tuple[FieldPath, ...] = (), cursor: FieldPath = ()) -> Stream:
    return Stream(StreamId.of(name), {"type": "object", "properties": columns}, primary_key=key, cursor=cursor)


TEXT = {"type": ["null", "string"]}


def test_streams_that_come_and_go_are_told() -> None:
    old = Catalog((stream("carts", {}), stream("users", {"id": TEXT})))
    new = Catalog((stream("users", {"id": TEXT}), stream("refunds", {"id": TEXT, "at": TEXT})))
    assert catalog_changes(old, new) == ["carts: the stream is gone", "refunds: new stream (2 columns)"]


def test_columns_keys_and_cursors_that_change_are_told() -> None:
    old = stream("users", {"id": {"type": "integer"}, "age": TEXT, "at": TEXT}, key=(("id",),), cursor=("at",))
    new = stream(
        "users",
        {"id": {"type": "string"}, "at": {**TEXT, "format": "date-time"}, "tags": {"type": "array", "items": TEXT}},
        key=(("id",), ("address", "city")),
    )
    assert catalog_changes(Catalog((old,)), Catalog((new,))) == [
        "users: column id was integer, is string",
        "users: column age is gone",
        "users: column at was string, is string (date-time)",
        "users: column tags is new (array of string)",
        "users: primary key was id, is id, address.city",
        "users: cursor was at, is none",
    ]


def test_fields_of_objects_are_told_by_their_paths_and_unions_by_their_parts() -> None:
    old = stream("users", {"address": {"type": "object", "properties": {"city": TEXT}}, "v": {"type": "number"}})
    new = stream(
        "users",
        {"address": {"type": "object", "properties": {"zip": TEXT}}, "v": {"oneOf": [{"type": "number"}, TEXT]}},
    )
    assert catalog_changes(Catalog((old,)), Catalog((new,))) == [
        "users: column address.city is gone",
        "users: column v was number, is number or string",
        "users: column address.zip is new (string)",
    ]


def test_a_mode_that_is_offered_no_more_is_told() -> None:
    full = stream("users", {})
    both = Stream(full.id, full.json_schema, read_modes=(ReadMode.FULL_REFRESH, ReadMode.INCREMENTAL))
    assert catalog_changes(Catalog((both,)), Catalog((full,))) == ["users: incremental reads are gone"]
    assert catalog_changes(Catalog((full,)), Catalog((both,))) == ["users: incremental reads are new"]


def test_what_does_not_matter_to_a_table_is_no_change() -> None:
    old = stream("users", {"id": {"type": "string", "title": "Id"}, "n": TEXT}, key=(("id",), ("n",)))
    new = stream("users", {"n": {"type": ["string", "null"]}, "id": {"type": "string"}}, key=(("n",), ("id",)))
    assert catalog_changes(Catalog((old,)), Catalog((new,))) == []


@pytest.mark.parametrize("schema", [{}, {"properties": None}, {"properties": {"a": True, "b": {"items": [1]}}}])
def test_odd_schemas_are_compared_too(schema: dict[str, Any]) -> None:
    odd = Catalog((Stream(StreamId.of("users"), schema),))
    assert catalog_changes(odd, odd) == []
