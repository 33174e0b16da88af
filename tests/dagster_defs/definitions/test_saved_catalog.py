"""The catalog that assets are made from: read from where `discover --save` keeps it, or refused with the way out."""

from pathlib import Path

import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.dagster_defs.definitions.saved_catalog import catalog_of_named_streams, saved_catalog
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.connector.answer_cache import AnswerCache
from tests.dagster_defs.support.saved import USERS, connection, connection_file, named, save


def _names(found: object) -> list[str]:
    return [str(stream.id) for stream in found.streams]  # type: ignore[attr-defined]  # None fails the test too


def test_what_the_command_line_saved_is_found(tmp_path: Path) -> None:
    offers = AnswerCache(Settings.load(tmp_path).catalogs_folder)
    offers.save_catalog("shop", b'{"streams":[{"name":"users","json_schema":{}}]}')

    assert _names(saved_catalog(connection(), home=tmp_path)) == ["users"]


def test_the_home_is_the_command_lines_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AIRBYTE_PROTO_HOME", raising=False)
    save(tmp_path / ".airbyte-proto", *named("of the working directory"))
    save(tmp_path / "elsewhere", *named("of the environment"))

    assert _names(saved_catalog(connection())) == ["of the working directory"]
    monkeypatch.setenv("AIRBYTE_PROTO_HOME", "elsewhere")
    assert _names(saved_catalog(connection())) == ["of the environment"]


def test_a_file_that_is_named_goes_before_the_home(tmp_path: Path) -> None:
    save(tmp_path, USERS)
    other = save(tmp_path / "other", *named("a", "b"))

    assert _names(saved_catalog(connection(), catalog=other, home=tmp_path)) == ["a", "b"]


def test_no_catalog_is_none_where_it_was_not_named(tmp_path: Path) -> None:
    assert saved_catalog(connection(), home=tmp_path) is None
    with pytest.raises(
        ConfigError, match=r"missing\.json cannot be used: there is no such file\n.* copy the file that it"
    ):
        saved_catalog(connection(), catalog=tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("{", "it is not JSON"),
        ('{"streams": 5}', "it has no list of streams"),
        ('{"streams": [{"json_schema": {}}]}', "stream number 1 has no name"),
    ],
)
def test_a_broken_catalog_is_reported_with_its_file_and_the_way_out(tmp_path: Path, content: str, found: str) -> None:
    shop = connection_file(tmp_path)
    path = save(tmp_path)
    path.write_text(content)

    with pytest.raises(ConfigError) as raised:
        saved_catalog(shop, home=tmp_path)

    assert str(raised.value) == (
        f"making the assets of {tmp_path}/shop.yaml: the catalog {path} cannot be used: {found}\n"
        f"Run `airbyte-proto discover {tmp_path}/shop.yaml --save`."
    )


@pytest.mark.parametrize("content", [b'{"streams": [{"name": "Caf\xe9"}]}', b"[" * 100_000])
def test_a_catalog_in_another_encoding_or_without_an_end_is_refused(tmp_path: Path, content: bytes) -> None:
    save(tmp_path).write_bytes(content)

    with pytest.raises(ConfigError, match="cannot be used: it is not JSON"):
        saved_catalog(connection(), home=tmp_path)


def test_a_catalog_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "catalogs" / "shop.json").mkdir(parents=True)

    with pytest.raises(ConfigError, match="cannot be used: Is a directory"):
        saved_catalog(connection(), home=tmp_path)


def test_named_streams_stand_in_for_a_catalog() -> None:
    shop = connection(streams={"users": {}, "sales.orders": {}, "*": {}})

    assert [stream.id for stream in catalog_of_named_streams(shop).streams] == [(None, "users"), ("sales", "orders")]


def test_a_named_stream_with_two_dots_needs_quotes() -> None:
    shop = connection(streams={'a."b.c"': {}, '"a.b".c': {}})
    assert [stream.id for stream in catalog_of_named_streams(shop).streams] == [("a", "b.c"), ("a.b", "c")]
    with pytest.raises(ConfigError, match=r"the namespace in 'a\.b\.c' is not known"):
        catalog_of_named_streams(connection(streams={"a.b.c": {}}))


@pytest.mark.parametrize("shop", [connection(), connection(streams={"*": {"write": "append"}})])
def test_with_neither_catalog_nor_names_the_way_out_is_reported(shop: Connection) -> None:
    with pytest.raises(ConfigError) as raised:
        catalog_of_named_streams(shop)

    assert str(raised.value) == (
        "making the assets of connection shop: no catalog is saved, and the connection names no stream\n"
        "Run `airbyte-proto discover shop --save`."
    )
