"""A connector that prints what it is given, byte for byte: for values that no JSON writer would write."""

import json
from collections.abc import Mapping
from typing import Any

import yaml

from dagster_airbyte_proto.model import Catalog
from dagster_airbyte_proto.protocols.airbyte.source import AirbyteSource
from dagster_airbyte_proto.protocols.events import CatalogEvent
from dagster_airbyte_proto.protocols.singer.source import SingerSource
from tests.sync.shop import Shop


def record_line(stream: str, values: Mapping[str, str]) -> bytes:
    """A record from the JSON texts of its fields; surrogate escapes become the bytes they stand for."""
    data = ",".join(f'"{name}":{text}' for name, text in values.items())
    record = f'{{"stream":"{stream}","data":{{{data}}},"emitted_at":1700000000000}}'
    return f'{{"type":"RECORD","record":{record}}}\n'.encode("utf-8", "surrogateescape")


def offer_lines(
    place: Shop, stream: str, properties: Mapping[str, Any], output: bytes, *, types: Mapping[str, str]
) -> Catalog:
    """From now on the shop's source has this one stream, and prints the output. The catalog that it offers."""
    offered = {"name": stream, "json_schema": {"properties": properties}, "supported_sync_modes": ["full_refresh"]}
    catalog = json.dumps({"type": "CATALOG", "catalog": {"streams": [offered]}}).encode()
    answers = {
        "spec": b'{"type":"SPEC","spec":{"connectionSpecification":{}}}',
        "check": b'{"type":"CONNECTION_STATUS","connectionStatus":{"status":"SUCCEEDED"}}',
        "discover": catalog,
        "read": output,
    }
    for verb, answer in answers.items():
        (place.folder / f"{verb}.jsonl").write_bytes(answer)
    place.program = ["sh", "-c", 'cat "$0/$1.jsonl"', str(place.folder)]
    place.offer({})
    written = yaml.safe_load(place.connection_file.read_text())
    place.connection_file.write_text(yaml.safe_dump({**written, "types": dict(types)}))
    event = AirbyteSource().event(catalog)
    assert isinstance(event, CatalogEvent)
    return event.catalog


def offer_transcript(place: Shop, transcript: bytes) -> Catalog:
    """From now on the shop's connector is a tap that prints the transcript, and offers each stream as it first tells of
    it. The catalog."""
    told: dict[str, Any] = {}
    for line in transcript.splitlines():
        message = json.loads(line)
        if message["type"] == "SCHEMA":
            told.setdefault(message["stream"], message)
    streams = [
        {"tap_stream_id": name, "schema": first["schema"], "key_properties": first["key_properties"]}
        for name, first in told.items()
    ]
    catalog = json.dumps({"streams": streams}).encode()
    (place.folder / "discover").write_bytes(catalog)
    (place.folder / "read").write_bytes(transcript)
    (place.folder / "help").write_text("usage: tap [--config CONFIG] [--catalog CATALOG] [--state STATE] [--discover]")
    answer = 'case "$*" in *--discover*) a=discover;; *--catalog*) a=read;; *) a=help;; esac; cat "$0/$a"'
    place.protocol = "singer"
    place.program = ["sh", "-c", answer, str(place.folder)]
    place.offer({})
    return SingerSource().catalog(catalog)
