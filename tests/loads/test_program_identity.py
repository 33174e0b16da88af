"""The program that a connector is: known again after an upgrade, in another folder, and by its name of before."""

from typing import Any

import pytest

from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.loads.program_identity import (
    connector_program,
    is_same_program,
    is_same_target,
    relay_identity,
)


def _connector(protocol: str = "singer", **launch: Any) -> Any:
    connector = {"protocol": protocol, "launch": launch}
    return Connection.model_validate({"name": "shop", "connector": connector}).connector


def _local(*command: str) -> Any:
    return _connector(kind="local", command=list(command))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (_local("/opt/v1/bin/target", "--fast"), _local("/opt/v2/bin/target", "--fast")),
        (_local("python3.11", "/old/target.py"), _local("/venv/bin/python3.12", "/new/target.py")),
        (_connector(kind="pypi", package="target-x==1.0"), _connector(kind="pypi", package="target-x>=1.1")),
        (_connector(kind="pypi", package="target-x==1.0"), _local("target-x")),
        (
            _connector(kind="docker", image="a/target:1"),
            _connector(kind="docker", image="localhost:5000/b/target@sha256:0"),
        ),
    ],
)
def test_an_upgrade_or_a_move_leaves_it_the_same(one: Any, other: Any) -> None:
    assert is_same_target(relay_identity(one), relay_identity(other))
    assert is_same_program(connector_program(one), connector_program(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (_local("target", "--to=a"), _local("target", "--to=b")),
        (_local("python3.11", "a.py"), _local("python3.11", "b.py")),
        (_connector(kind="pypi", package="target-x==1"), _connector(kind="pypi", package="target-y==1")),
        (_local("target"), _connector("airbyte", kind="local", command=["target"])),
        (_connector("rapidbyte", kind="wasm", path="a.wasm"), _connector("rapidbyte", kind="wasm", path="b.wasm")),
    ],
)
def test_another_program_is_another_one(one: Any, other: Any) -> None:
    assert not is_same_target(relay_identity(one), relay_identity(other))
    assert not is_same_program(connector_program(one), connector_program(other))


def test_names_of_earlier_releases_are_known_again() -> None:
    component = _connector("rapidbyte", kind="wasm", path="destination.wasm")
    assert is_same_program("rapidbyte", connector_program(component))
    assert is_same_target("relay rapidbyte wasm", relay_identity(component))
    assert is_same_program("airbyte python3.11 target.py", "airbyte python target.py")
    assert not is_same_target("relay singer local target", "0d5f3b6e-0000-4000-8000-000000000000")
