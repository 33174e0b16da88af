"""Manifests in custom sections, wherever a toolchain left them; and what is granted out of them."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.protocols.rapidbyte.component.wasm_binary import (
    COMPONENT,
    MODULE,
    WasmFormatError,
    custom_sections,
    leb128,
    section,
)
from dagster_airbyte_proto.protocols.rapidbyte.grants import Grants, HostRule, Narrowing, config_hosts, granted
from dagster_airbyte_proto.protocols.rapidbyte.manifest import ConnectorManifest, ManifestLimits, read_manifest

_MANIFEST = {
    "id": "acme/source",
    "name": "Acme",
    "protocol_version": "4",
    "permissions": {
        "network": {"allowed_domains": ["db.acme.com", "*.corp"], "allow_runtime_config_domains": True},
        "fs": {"preopens": ["/data", "/exports"]},
        "env": {"allowed_vars": ["TOKEN", "DSN"]},
    },
    "limits": {"max_memory": "128mb", "timeout_seconds": 60},
    "roles": {"source": {"supported_sync_modes": ["full_refresh"]}, "destination": None},
    "of_tomorrow": [1],
}


def _custom(name: str, content: object) -> bytes:
    written = name.encode()
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return section(0, leb128(len(written)) + written + body)


def _read(**parts: Any) -> ConnectorManifest:
    return read_manifest(COMPONENT + _custom("rapidbyte_manifest_v1", {**_MANIFEST, **parts}), "acme.wasm")


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_manifest_is_found_wherever_it_lies(depth: int) -> None:
    binary = MODULE + _custom("rapidbyte_manifest_v1", _MANIFEST) + _custom("rapidbyte_config_schema_v1", {"a": 1})
    for level in range(depth):
        binary = COMPONENT + _custom("name", b"x" * 300) + section(1 if level == 0 else 4, binary)
    manifest = read_manifest(binary, "acme.wasm")
    assert (manifest.id, manifest.declared_roles, manifest.config_schema) == ("acme/source", ("source",), {"a": 1})
    assert manifest.permissions.fs.preopens == ("/data", "/exports")
    assert manifest.version_warning == ""


def test_another_protocol_version_is_a_warning_and_no_refusal() -> None:
    assert "says protocol version 5, and we speak 4" in _read(protocol_version=5).version_warning


def test_a_connector_without_a_manifest_is_granted_nothing() -> None:
    assert granted(read_manifest(COMPONENT, "acme.wasm"), Narrowing(), {"host": "db.acme.com"}) == Grants()


@pytest.mark.parametrize(
    ("binary", "found"),
    [
        (b"#!/bin/sh", "does not begin as WebAssembly does"),
        (COMPONENT + b"\x00\xff", "cut off"),
        (COMPONENT + _custom("rapidbyte_manifest_v1", b"{"), "it is no manifest"),
        (COMPONENT + _custom("rapidbyte_manifest_v1", {"permissions": []}), "it is no manifest"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_says_so(binary: bytes, found: str) -> None:
    with pytest.raises(ConfigError, match=found):
        read_manifest(binary, "acme.wasm")


@given(st.binary(max_size=100))
def test_any_bytes_have_sections_or_are_no_wasm(junk: bytes) -> None:
    for start in (b"", COMPONENT, MODULE):
        with contextlib.suppress(WasmFormatError):
            custom_sections(start + junk, frozenset({"a"}))


def test_what_a_connection_omits_stays_as_the_manifest_has_it() -> None:
    grants = granted(_read(), Narrowing(), {"db": {"host": "localhost"}})
    assert grants == Grants(
        HostRule(("db.acme.com", "*.corp"), ("localhost",)),
        ("TOKEN", "DSN"),
        ("/data", "/exports"),
        128 << 20,
        60.0,
        True,
    )
    assert list(grants.lines()) == [
        "hosts: db.acme.com, *.corp, localhost (of its config)",
        "variables: TOKEN, DSN",
        "folders: /data, /exports",
        "memory: 128 MiB",
        "seconds of a call: 60",
    ]


def test_a_connection_narrows_and_never_widens() -> None:
    narrowing = Narrowing(("*.acme.com", "x"), ("DSN", "HOME"), ("/exports", "/etc"), 1 << 40, 30)
    grants = granted(_read(), narrowing)
    assert grants[1:] == (("DSN",), ("/exports",), 128 << 20, 30.0, True)
    assert [grants.hosts.permits(host, 443) for host in ("db.acme.com", "x", "a.corp", "other.acme.com")] == [
        True,
        False,
        False,
        False,
    ]


def test_an_empty_list_blocks_all() -> None:
    grants = granted(_read(), Narrowing((), (), ()), {"host": "db.acme.com"})
    assert (grants.variables, grants.preopens, grants.hosts.permits("db.acme.com", 5432)) == ((), (), False)


def test_it_is_known_who_can_raise_the_limit_of_memory() -> None:
    assert not granted(_read(), Narrowing(memory_bytes=64 << 20)).memory_is_declared
    assert not granted(ConnectorManifest(), Narrowing()).memory_is_declared


def test_without_limits_there_are_defaults() -> None:
    bare = ConnectorManifest()
    assert granted(bare, Narrowing())[3:5] == (1 << 30, 300.0)
    assert granted(bare, Narrowing(memory_bytes=5, timeout_seconds=900))[3:5] == (5, 900.0)


@pytest.mark.parametrize("memory", ["lots", -1, 0, "0mb", "9" * 400])
def test_a_limit_of_a_manifest_that_is_none_is_refused_and_does_not_lift_that_of_the_connection(
    memory: int | str,
) -> None:
    with pytest.raises(ConfigError, match="which is no size"):
        granted(ConnectorManifest(limits=ManifestLimits(max_memory=memory)), Narrowing(memory_bytes=64 << 20))
    with pytest.raises(ConfigError, match="timeout_seconds is -1"):
        granted(ConnectorManifest(limits=ManifestLimits(timeout_seconds=-1)), Narrowing())


def test_a_folder_is_the_same_with_a_slash_at_its_end() -> None:
    folders = {"fs": {"preopens": ["/data", "/exports/", "/data/link/.."]}}
    narrowing = Narrowing(preopens=("/data/", "/exports"))
    assert granted(_read(permissions=folders), narrowing).preopens == ("/data", "/exports/")


@pytest.mark.parametrize(
    ("pattern", "host", "permitted"),
    [
        ("*", "anything", True),
        ("*.corp", "a.corp", True),
        ("*.corp", "a.b.corp", True),
        ("*.corp", "corp", False),
        ("*.corp", "evilcorp", False),
        ("db.corp", "DB.corp.", True),
        ("db.corp", "db.corp.evil.com", False),
        ("::1", "[::1]", True),
        ("[::1]:5432", "::1", True),
        ("[::1]:80", "::1", False),
        ("db.corp:5432", "db.corp", True),
        ("db.corp:80", "db.corp", False),
        ("*.corp:5432", "db.corp", True),
        ("*:80", "db.corp", False),
        ("*.corp", "8.8.8.8\0.corp", False),
        ("*", "8.8.8.8 .corp", False),
        ("*.corp", "8.8.8.8\N{IDEOGRAPHIC FULL STOP}corp", False),
        ("*", "db.corp\n", False),
    ],
)
def test_a_host_is_a_name_a_suffix_or_any(pattern: str, host: str, permitted: bool) -> None:
    assert HostRule((pattern,)).permits(host, 5432) is permitted


_SPECIAL = [
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "0.1.2.3", "169.254.169.254", "224.0.0.1", "240.0.0.1", "255.255.255.255",
    "::1", "::", "fe80::1", "fe80::1%eth0", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1",
    "2002:7f00:1::", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "fd20:ce::254", "192.0.0.192",
]  # fmt: skip


@pytest.mark.parametrize("address", _SPECIAL)
def test_no_manifest_grants_an_address_of_this_machine(address: str) -> None:
    rule = HostRule(("*", "localhost", address))
    assert rule.permits(address, 80) and not rule.permits_address(address, 80, address)
    assert not rule.permits_address("db.acme.com", 80, "no address")


@pytest.mark.parametrize("rule", [HostRule(("*",), ("localhost",)), HostRule(("*",), (), ("localhost",))])
def test_the_user_may_name_this_machine(rule: HostRule) -> None:
    assert rule.permits_address("localhost", 80, "127.0.0.1")
    assert not rule.permits_address("rebound.example.com", 80, "127.0.0.1")


@pytest.mark.parametrize("rule", [HostRule(("*",), ("localhost:80",)), HostRule(("*",), (), ("localhost:80",))])
def test_the_user_may_name_one_port_of_this_machine(rule: HostRule) -> None:
    assert rule.permits_address("localhost", 80, "127.0.0.1")
    assert not rule.permits_address("localhost", 5432, "127.0.0.1")


def test_a_component_may_use_other_ports_of_the_host_of_its_config() -> None:
    rule = HostRule((), ("db.acme.com:9000",))
    assert rule.permits("db.acme.com", 8123) and not rule.permits("other.acme.com", 9000)
    assert config_hosts({"url": "mongodb://one.acme.com:27017,two.acme.com:27017/db"}) == ("one.acme.com",)
    assert config_hosts({"host": "db.acme.com", "port": 0}) == ("db.acme.com",)


@pytest.mark.parametrize("address", ["10.0.0.5", "192.168.1.9", "93.184.216.34", "2606:2800:220:1::1", "fd12::1"])
def test_other_addresses_are_permitted_with_their_hosts(address: str) -> None:
    assert HostRule(("*",)).permits_address("db.acme.com", 80, address)


def test_hosts_of_a_config_are_those_of_its_known_keys() -> None:
    config = {
        "host": "db.acme.com",
        "Server": "two.acme.com:5432",
        "base_url": "https://user:pw@three.acme.com:8443/path",
        "nested": [{"hostname": "four.acme.com", "port": "5433", "password": "five.acme.com"}],
        "jdbc_url_params": "",
        "broker_urls": ["https://six.acme.com", {"host": "seven.acme.com"}, 8],
        "address": "*",
        "url": "http://[::1",
        "name": "eight.acme.com",
    }
    assert config_hosts(config) == (
        "db.acme.com",
        "two.acme.com:5432",
        "three.acme.com:8443",
        "four.acme.com:5433",
        "six.acme.com",
        "seven.acme.com",
    )
