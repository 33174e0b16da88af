"""The cache of connectors' answers on disk."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.errors import InternalError, StagingError
from dagster_airbyte_proto.sync.connector.answer_cache import AnswerCache, CachedAnswer

SPEC = b'{"type": "SPEC", "spec": {"n": 12345678901234567890, "x": 1.50, "text": "\xc3\xa9"}}'
COMPACT = b'{"type":"SPEC","spec":{"n":12345678901234567890,"x":1.50,"text":"\xc3\xa9"}}'


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_kept_spec_comes_back_with_its_numbers_as_written(tmp_path: Path) -> None:
    AnswerCache(tmp_path).keep_spec("local:source-x@1", SPEC)
    assert AnswerCache(tmp_path).spec("local:source-x@1") == CachedAnswer(COMPACT)
    assert AnswerCache(tmp_path).spec("local:source-x@2") == CachedAnswer(None)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (b'{"default":NaN,"maximum":-Infinity,"n":123456789012345678901}', {"default": None, "maximum": None}),
        (b'{"maximum":1e400,"n":123456789012345678901}', {"maximum": None}),
        (b'{"description":"caf\xe9","n":123456789012345678901}', {"description": "caf\ufffd"}),
        (b'{"description":"half \\ud83d","n":123456789012345678901}', {"description": "half ?"}),
    ],
)
def test_what_a_strict_reader_refuses_is_kept_as_it_is_read(sent: bytes, kept: dict[str, Any], tmp_path: Path) -> None:
    """Python's json prints NaN, and JavaScript half of a pair, in descriptions and limits that no column needs."""
    AnswerCache(tmp_path).save_catalog("shop", sent)
    AnswerCache(tmp_path).keep_catalog("shop", "x@1", "digest", sent)
    for found in (AnswerCache(tmp_path).saved_catalog("shop"), AnswerCache(tmp_path).catalog("shop", "x@1", "digest")):
        assert json.loads(found.message or b"") == {**kept, "n": 123456789012345678901}


def test_a_kept_file_is_readable_by_a_person(tmp_path: Path) -> None:
    AnswerCache(tmp_path).keep_spec("pypi:airbyte-source-faker==7.2.1", SPEC)
    (file,) = files(tmp_path)
    assert "source-faker-7-2-1" in file.name
    assert json.loads(file.read_bytes())["identity"] == "pypi:airbyte-source-faker==7.2.1"
    assert file.read_text().count("\n") > 5


@pytest.mark.parametrize("identity", ["../../etc/passwd", "/", "a\0b", "ä" * 500, "", "CON", "."])
def test_any_identity_makes_a_safe_name(tmp_path: Path, identity: str) -> None:
    offers = AnswerCache(tmp_path / "catalogs")
    offers.keep_spec(identity, b"{}")
    assert offers.spec(identity) == CachedAnswer(b"{}")
    assert [file.parent for file in files(tmp_path)] == [tmp_path / "catalogs" / "cached"]


def test_a_catalog_belongs_to_one_identity_and_one_config(tmp_path: Path) -> None:
    offers = AnswerCache(tmp_path)
    offers.keep_catalog("shop", "x@1", "digest", b'{"streams":[]}')
    assert offers.catalog("shop", "x@1", "digest") == CachedAnswer(b'{"streams":[]}')
    others = [("shop", "x@2", "digest"), ("shop", "x@1", "other"), ("stall", "x@1", "digest")]
    assert [offers.catalog(*other) for other in others] == [CachedAnswer(None)] * 3


def test_a_new_catalog_takes_the_place_of_the_old(tmp_path: Path) -> None:
    offers = AnswerCache(tmp_path)
    for identity in ("x@1", "x@2"):
        offers.keep_catalog("shop", identity, "digest", b"{}")
    assert offers.catalog("shop", "x@2", "digest") == CachedAnswer(b"{}")
    assert len(files(tmp_path)) == 1


def test_a_saved_catalog_has_the_name_of_its_connection(tmp_path: Path) -> None:
    offers = AnswerCache(tmp_path / "catalogs")
    assert offers.saved_catalog("shop") == CachedAnswer(None)
    path = offers.save_catalog("shop", b'{"streams":[]}')
    assert path == tmp_path / "catalogs" / "shop.json"
    assert json.loads(path.read_text()) == {"streams": []}
    assert offers.saved_catalog("shop") == CachedAnswer(b'{"streams":[]}')
    with pytest.raises(InternalError):
        offers.save_catalog("../shop", b"{}")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"identity": "x"}', b"\xff\xfe", b'{"identity":"x","message":{]}']
)
def test_a_corrupt_file_counts_as_absent_with_a_warning(tmp_path: Path, content: bytes) -> None:
    offers = AnswerCache(tmp_path)
    offers.keep_spec("x", SPEC)
    (file,) = files(tmp_path)
    file.write_bytes(content)
    message, warning = offers.spec("x")
    assert message is None
    assert str(file) in warning
    offers.keep_spec("x", SPEC)
    assert offers.spec("x") == CachedAnswer(COMPACT)


def test_a_corrupt_saved_catalog_and_a_folder_in_its_place_give_warnings(tmp_path: Path) -> None:
    (tmp_path / "shop.json").write_text("{")
    (tmp_path / "stall.json").mkdir()
    assert "shop.json" in AnswerCache(tmp_path).saved_catalog("shop").warning
    assert "Is a directory" in AnswerCache(tmp_path).saved_catalog("stall").warning


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "shop.json").mkdir()
    with pytest.raises(StagingError) as error:
        AnswerCache(tmp_path).save_catalog("shop", b"{}")
    assert "shop.json" in str(error.value)
    assert os.listdir(tmp_path) == ["shop.json"]  # noqa: PTH208  the names, hidden ones too


def test_a_saved_catalog_has_the_permissions_of_other_files(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    path = AnswerCache(tmp_path).save_catalog("shop", b"{}")
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode


def test_what_is_no_json_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(InternalError):
        AnswerCache(tmp_path).keep_spec("x", b'{"a": ')
    assert files(tmp_path) == []
