"""Reads the saved catalog of a connection. Nothing here starts a connector or uses the network."""

from pathlib import Path

import msgspec

from dagster_airbyte_proto.connection import OTHERS, Connection
from dagster_airbyte_proto.connection.stream_names import parsed_name
from dagster_airbyte_proto.errors import ConfigError, ConnectorError
from dagster_airbyte_proto.model import Catalog, FieldPath, ReadMode, Stream
from dagster_airbyte_proto.project_folder import home_folder
from dagster_airbyte_proto.protocols.lookup import source_protocol

# A placeholder so that modes that need a key can be planned; `asset_streams` removes it before anybody sees it.
_UNKNOWN_KEY: tuple[FieldPath, ...] = (("?",),)


def saved_catalog(
    connection: Connection, *, catalog: Path | None = None, home: Path | str | None = None, remedy: str = ""
) -> Catalog | None:
    """The catalog in the file `catalog`, or the one that `airbyte-proto discover --save` saved under `home`, if any.

    Raises ConfigError for a file that cannot be read, with this `remedy` where it is another than that command.
    """
    path = catalog or saved_catalog_path(connection, home)
    if not remedy:
        remedy = discover_remedy(connection) if catalog is None else _copy_remedy(connection, path)
    try:
        return _parsed(connection, path.read_bytes())
    except FileNotFoundError as error:
        if catalog is None:
            return None
        raise _unusable(connection, path, "there is no such file", remedy) from error
    except OSError as error:
        raise _unusable(connection, path, error.strerror or str(error), remedy) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unusable(connection, path, "it is not JSON", remedy) from error
    except ConnectorError as error:
        raise _unusable(connection, path, error.found, remedy) from error


def saved_catalog_path(connection: Connection, home: Path | str | None = None) -> Path:
    """The file in which `airbyte-proto discover --save` saves the catalog."""
    return home_folder(home) / "catalogs" / f"{connection.name}.json"


def catalog_of_named_streams(connection: Connection) -> Catalog:
    """A catalog of the streams that the connection names, for one that was never discovered. Raises ConfigError if it
    names none.

    A name with a dot is read as a namespace and a name; one with more dots must have quotes. Modes and keys are
    guesses until there is a real catalog.
    """
    names = [name for name in connection.streams or {} if name != OTHERS]
    if not names:
        found = "no catalog is saved, and the connection names no stream"
        raise ConfigError(asset_error_context(connection), found, remedy=discover_remedy(connection))
    return Catalog(tuple(_stream_of_name(name, connection) for name in names))


def discover_remedy(connection: Connection) -> str:
    """The remedy for a missing or outdated catalog."""
    return f"Run `airbyte-proto discover {connection.origin or connection.name} --save`."


def _copy_remedy(connection: Connection, path: Path) -> str:
    """The same for a file of the user's own: the command saves none there."""
    return f"{discover_remedy(connection)} Then copy the file that it saves to {path}."


def _stream_of_name(name: str, connection: Connection) -> Stream:
    stream = parsed_name(name)
    if stream is None:
        found = f"without a saved catalog the namespace in {name!r} is not known"
        remedy = f'{discover_remedy(connection)} Or write the name in quotes, such as a."b.c".'
        raise ConfigError(asset_error_context(connection), found, remedy=remedy)
    return Stream(stream, {}, tuple(ReadMode), primary_key=_UNKNOWN_KEY, is_cursor_fixed=True)


def _parsed(connection: Connection, message: bytes) -> Catalog:
    msgspec.json.decode(message)
    return source_protocol(connection.connector.protocol).catalog(msgspec.json.format(message, indent=-1))


def _unusable(connection: Connection, path: Path, found: str, remedy: str) -> ConfigError:
    return ConfigError(asset_error_context(connection), f"the catalog {path} cannot be used: {found}", remedy=remedy)


def asset_error_context(connection: Connection) -> str:
    """The beginning of an error message: the connection whose assets could not be made."""
    return f"making the assets of {connection.origin or f'connection {connection.name}'}"
