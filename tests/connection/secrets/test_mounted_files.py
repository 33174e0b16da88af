"""`${file:…}`: the whole text of a file, and a clear word where it cannot be one."""

import os
from pathlib import Path

import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError
from tests.connection.test_connection import CONNECTOR, LOCAL, read


def connection(reference: str) -> Connection:
    config = {"password": f"${{file:{reference}}}"}
    return Connection.model_validate({"name": "shop", "connector": CONNECTOR, "config": config})


def found(shop: Connection) -> str:
    with pytest.raises(ConfigError) as error:
        shop.filled_config({})
    return error.value.found


@pytest.mark.parametrize(
    ("content", "value"),
    [(b"hunter2", "hunter2"), (b"hunter2\n", "hunter2"), (b"a\r\n", "a"), (b"a\nb\n\n", "a\nb\n"), (b"", "")],
)
def test_the_secret_is_the_text_of_the_file_without_its_line_end(tmp_path: Path, content: bytes, value: str) -> None:
    (tmp_path / "word").write_bytes(content)
    filled = connection(f"{tmp_path}/word").filled_config({})
    assert filled.config == {"password": value}
    assert filled.secrets == {value} - {""}


def test_a_relative_path_starts_at_the_folder_of_the_connection_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "word").write_text("hunter2\n")
    shop = read(tmp_path, LOCAL + 'config: {password: "x ${file:word}"}')
    monkeypatch.chdir("/")
    assert shop.filled_config({}).config == {"password": "x hunter2"}


def test_a_relative_path_is_refused_where_there_is_no_file_to_start_from() -> None:
    assert found(connection("word")) == (
        "config.password: the path word is relative, and the connection was not read from a file. "
        "Write an absolute path."
    )


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    assert found(connection(f"{tmp_path}/word")) == f"config.password: there is no file {tmp_path}/word"
    assert found(connection(f"{tmp_path}")) == f"config.password: {tmp_path} is a folder"
    assert found(connection("")) == 'config.password: "${file:…}" must hold the path of a file'


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert found(connection(f"{tmp_path}/pipe")) == f"config.password: {tmp_path}/pipe is no regular file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "word").write_text("hunter2")
    (tmp_path / "word").chmod(0)
    assert found(connection(f"{tmp_path}/word")) == f"config.password: cannot read {tmp_path}/word: Permission denied"


def test_a_file_below_a_file_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "word").write_text("hunter2")
    assert found(connection(f"{tmp_path}/word/x")) == f"config.password: cannot read {tmp_path}/word/x: Not a directory"


def test_a_file_that_is_too_large_or_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (1024 * 1024 + 1))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert found(connection(f"{tmp_path}/large")) == (
        f"config.password: {tmp_path}/large has more than 1 MiB, which is no secret"
    )
    assert found(connection(f"{tmp_path}/binary")) == f"config.password: {tmp_path}/binary is not text in UTF-8"
