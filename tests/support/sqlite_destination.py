"""A destination on `airbyte-cdk`: it keeps each stream in a table of an SQLite file, and does all that the protocol
knows. It is run as a program of its own, `python sqlite_destination.py write --config …`.

1. All modes by the protocol's own rules. An `overwrite` shows its rows when the stream is COMPLETE: rows of generations
   below `minimum_generation_id` go then. Rows of the same generation stay, whoever sent them.
2. A state goes back only when its rows are committed, and at once: what the CDK prints may wait in a buffer.
3. Records that lack a field which the config `requires` are rejected, and counted in the `destinationStats`.
4. `discover` lists the `objects` of the config, each with the mode `update` and its matching keys. Without objects
   there is no such command, as in most destinations.

The config may also ask for what other destinations were seen to do: `echo` states `each` at once, the `last` one or
`never`; send back a `bare` body, or a state `of_all` streams; `rotate` a number in the config; `fail` for a stream;
`die_after` so many messages, once.
"""

import json
import os
import sqlite3
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from airbyte_cdk.destinations import Destination
from airbyte_cdk.models import (
    AirbyteConnectionStatus,
    AirbyteControlConnectorConfigMessage,
    AirbyteControlMessage,
    AirbyteMessage,
    AirbyteMessageSerializer,
    AirbyteRecordMessage,
    AirbyteStreamStatus,
    ConfiguredAirbyteCatalog,
    ConfiguredAirbyteStream,
    ConnectorSpecification,
    DestinationSyncMode,
    FailureType,
    OrchestratorType,
    Status,
    StreamDescriptor,
    Type,
)
from airbyte_cdk.utils.traced_exception import AirbyteTracedException

_MODES = [
    DestinationSyncMode.append,
    DestinationSyncMode.append_dedup,
    DestinationSyncMode.overwrite,
    DestinationSyncMode.update,
]
_SPEC = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "required": ["path"],
    "additionalProperties": False,
    "properties": {
        "path": {"type": "string"},
        "requires": {"type": "array", "items": {"type": "string"}},
        "objects": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}},
        "echo": {"enum": ["each", "last", "never"]},
        "bare": {"type": "boolean"},
        "of_all": {"type": "boolean"},
        "rotate": {"type": "integer"},
        "fail": {"type": "string"},
        "die_after": {"type": "integer"},
    },
}
Config = Mapping[str, Any]


class SqliteDestination(Destination):  # type: ignore[misc]  # airbyte-cdk is installed where this runs, not here
    def spec(self, logger: object) -> ConnectorSpecification:  # noqa: ARG002 - the CDK's own signature
        return ConnectorSpecification(connectionSpecification=_SPEC, supported_destination_sync_modes=_MODES)

    def check(self, logger: object, config: Config) -> AirbyteConnectionStatus:  # noqa: ARG002
        try:
            sqlite3.connect(config["path"]).close()
        except sqlite3.Error as error:
            return AirbyteConnectionStatus(status=Status.FAILED, message=str(error))
        return AirbyteConnectionStatus(status=Status.SUCCEEDED)

    def write(
        self,
        config: Config,
        configured_catalog: ConfiguredAirbyteCatalog,
        input_messages: Iterable[AirbyteMessage],
    ) -> Iterable[AirbyteMessage]:
        if "rotate" in config:
            yield _rewritten_config({**config, "rotate": config["rotate"] + 1})
        database = sqlite3.connect(config["path"])
        tables = {each.stream.name: _Table(database, each, config) for each in configured_catalog.streams}
        last: AirbyteMessage | None = None
        for number, message in enumerate(input_messages):
            if number == config.get("die_after") and _is_first_time(config):
                database.commit()
                os._exit(7)
            if message.type == Type.RECORD:
                tables[message.record.stream].write(message.record)
            elif message.type == Type.TRACE and message.trace.stream_status is not None:
                if message.trace.stream_status.status == AirbyteStreamStatus.COMPLETE:
                    tables[message.trace.stream_status.stream_descriptor.name].complete()
            elif message.type == Type.STATE:
                database.commit()
                last = message
                if config.get("echo", "each") == "each":
                    _send_back(message, tables, config)
        database.commit()
        if last is not None and config.get("echo") == "last":
            _send_back(last, tables, config)

    def run(self, args: list[str]) -> None:
        if args[0] != "discover":
            super().run(args)
            return
        config = self.read_config(args[args.index("--config") + 1])
        if "objects" not in config:
            sys.exit("discover: no such command")
        operations = [
            {"object_name": name, "sync_mode": "update", "json_schema": {}, "matching_keys": [[key] for key in keys]}
            for name, keys in config["objects"].items()
        ]
        _say({"type": "DESTINATION_CATALOG", "destination_catalog": {"operations": operations}})


class _Table:
    """The table of a stream. `data` is the record; `key` the values of its primary key."""

    def __init__(self, database: sqlite3.Connection, stream: ConfiguredAirbyteStream, config: Config) -> None:
        self._database, self._stream, self._config = database, stream, config
        self._name = '"' + stream.stream.name.replace('"', '""') + '"'
        self.written = self.rejected = 0
        database.execute(f"CREATE TABLE IF NOT EXISTS {self._name} (key TEXT, generation INTEGER, data TEXT)")
        database.execute("CREATE TABLE IF NOT EXISTS _completed (stream TEXT, generation INTEGER)")

    def write(self, record: AirbyteRecordMessage) -> None:
        name, data = self._stream.stream.name, record.data
        if self._config.get("fail") == name:
            raise AirbyteTracedException(
                message=f"{name} is closed",
                failure_type=FailureType.config_error,
                stream_descriptor=StreamDescriptor(name=name),
            )
        is_removal = bool(data.get("_ab_cdc_deleted_at"))
        if not is_removal and any(data.get(each) is None for each in self._config.get("requires", ())):
            self.rejected += 1
            return
        self.written += 1
        key = json.dumps([data.get(path[0]) for path in self._stream.primary_key or ()])
        if self._stream.destination_sync_mode == DestinationSyncMode.update:
            changed = f"UPDATE {self._name} SET data = json_patch(data, ?) WHERE key = ?"
            self._database.execute(changed, (json.dumps(data), key))
            return
        if self._stream.destination_sync_mode == DestinationSyncMode.append_dedup:
            self._database.execute(f"DELETE FROM {self._name} WHERE key = ?", (key,))
        if not is_removal:
            row = (key, self._stream.generation_id, json.dumps(data))
            self._database.execute(f"INSERT INTO {self._name} VALUES (?, ?, ?)", row)

    def complete(self) -> None:
        oldest = self._stream.minimum_generation_id or 0
        self._database.execute(f"DELETE FROM {self._name} WHERE generation < ?", (oldest,))
        completed = (self._stream.stream.name, self._stream.generation_id)
        self._database.execute("INSERT INTO _completed VALUES (?, ?)", completed)


def _send_back(message: AirbyteMessage, tables: Mapping[str, _Table], config: Config) -> None:
    """Sends a state back with the counts of its stream. The CDK's own classes have no place for rejected records."""
    table = tables[message.state.stream.stream_descriptor.name]
    state = AirbyteMessageSerializer.dump(message)["state"]
    if config.get("of_all"):
        state = {"type": "GLOBAL", "global": {"shared_state": None, "stream_states": [state["stream"]]}}
    counts = {"recordCount": float(table.written), "rejectedRecordCount": float(table.rejected)}
    state["destinationStats"] = counts
    table.written = table.rejected = 0
    _say(state if config.get("bare") else {"type": "STATE", "state": state})


def _rewritten_config(config: Config) -> AirbyteMessage:
    rewritten = AirbyteControlConnectorConfigMessage(config=dict(config))
    control = AirbyteControlMessage(OrchestratorType.CONNECTOR_CONFIG, emitted_at=0.0, connectorConfig=rewritten)
    return AirbyteMessage(type=Type.CONTROL, control=control)


def _is_first_time(config: Config) -> bool:
    mark = Path(f"{config['path']}.died")
    is_first = not mark.exists()
    mark.touch()
    return is_first


def _say(message: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    SqliteDestination().run(sys.argv[1:])
