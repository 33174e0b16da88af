"""The settings of a home folder: a small YAML file, with a default for everything that it leaves out."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import unquote

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from dagster_airbyte_proto.atomic_files import has_no_room, write_atomically
from dagster_airbyte_proto.checkpoints.sqlite_files import is_sqlite_file
from dagster_airbyte_proto.connection.connection import RunOn
from dagster_airbyte_proto.connection.document import Document, read_document
from dagster_airbyte_proto.connection.faults import nearest, not_allowed
from dagster_airbyte_proto.connection.validation import StrictModel, validated
from dagster_airbyte_proto.errors import ConfigError, StagingError
from dagster_airbyte_proto.launchers.registry.download import PUBLIC_REGISTRY
from dagster_airbyte_proto.masking import named_secrets
from dagster_airbyte_proto.project_folder import expanded
from dagster_airbyte_proto.tables.formats import FORMAT_NAMES, SESSION_CATALOG, find_format
from dagster_airbyte_proto.tables.remote_sessions import tokens_of

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+._-]*:")

_RELATIVE_SQLITE = re.compile(r"(sqlite(?:\+\w+)?:///)(?!/|:memory:|file:)(?=[^?])")

_LOGIN = re.compile(r"://[^/@]*:.*@|password=", re.IGNORECASE)
"""A password in a URL, also in one that is none: whoever writes an "@" or a "/" in a password may not escape it."""

_MIN_HISTORY_DAYS = 7
# A time so long ago, or so far ahead, has to be one that databases know.
_MAX_HISTORY_DAYS, _MAX_LEASE_SECONDS = 365_000, 1_000_000_000


def _check_store_is_not_elsewhere(folder: Path, name: str) -> None:
    """Raises ValueError where a store lies in the working directory, at which earlier releases let the path start, or
    where they misread the folder: a new one beside it would know of no sync."""
    new = folder / name
    old = _misread_place(new) or Path.cwd() / name
    if old.is_file() and not new.exists():
        raise ValueError(
            f"starts at the folder of this file, so the store is {new}, which is not there; there is one at {old}: move"
            " it if it is that of this project, or write the whole path of the store"
        )


def _store_url(path: Path) -> str:
    """The URL of a home folder's own store. Raises ConfigError where the store lies where it was misread."""
    if (old := _misread_place(path)) is not None:
        raise ConfigError(
            "opening the home folder",
            f"the state store is {path}, which is not there; an earlier release put it at {old}",
            remedy="Is it that of this home? Then move it, with the files beside it that begin with its name. Is it"
            " another project's? Then name one of your own by state_url in the settings.",
        )
    return f"sqlite:///{_url_path(path)}"


def _misread_place(path: Path) -> Path | None:
    """The store that an earlier release made at what it read out of the path: up to a "?", with letters for escapes.
    Several folders have that place. None if it made none, or the store is at its path by now."""
    old = Path(unquote(str(path).partition("?")[0]))
    return old if old != path and is_sqlite_file(old) and not path.exists() else None


def _url_path(path: Path) -> str:
    """A path as a URL has it. Jenkins names the folder of a branch `shop_feature%2Fprices`."""
    return str(path).replace("%", "%25").replace("?", "%3F")


def _make_ignored_folder(folder: Path) -> None:
    """Makes a folder that git ignores. Where that file cannot be written the folder goes again: a folder that is there
    gets none any more."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        write_atomically(folder / ".gitignore", b"*\n")
    except OSError:
        with suppress(OSError):  # Another process has made files in it.
            folder.rmdir()
        raise


def _from_folder(place: str, info: ValidationInfo) -> str:
    # A path from Python, without a file around it, starts at the working directory: it is left as it is.
    is_path = place and not _URL.match(place) and info.context
    return str(info.context["folder"] / expanded(place)) if is_path and info.context else place


def _spark_value(value: Any) -> Any:
    """Spark's settings are text, and a user writes `true` and `4` without quotes."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


class CatalogSettings(StrictModel):
    """The Spark catalog that holds the tables.

    An empty `name` means the default of the format. `warehouse` is a folder or a URL; empty, it is `warehouse` in the
    home folder.
    """

    name: str = ""
    format: str = "iceberg"
    warehouse: str = ""

    @field_validator("name")
    @classmethod
    def _plain_name(cls, name: str) -> str:
        if name and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError('must be of letters, digits and "_", and not begin with a digit')
        return name

    @field_validator("format")
    @classmethod
    def _known_format(cls, name: str) -> str:
        try:
            find_format(name)
        except ConfigError as error:
            problem = error.found if ":" in name else not_allowed(name, FORMAT_NAMES)
            raise ValueError(problem if nearest(name, FORMAT_NAMES) else f"{problem}\n{error.remedy}") from error
        return name

    @field_validator("warehouse")
    @classmethod
    def _from_the_file(cls, warehouse: str, info: ValidationInfo) -> str:
        if not warehouse or _URL.match(warehouse) or not info.context:
            return warehouse
        return str((info.context["folder"] / expanded(warehouse)).absolute())

    @model_validator(mode="after")
    def _fits_the_format(self) -> Self:
        abilities = find_format(self.format).abilities
        tables = f"tables of the format {abilities.format}"
        if abilities.is_local and _URL.match(self.warehouse):
            raise ValueError(
                f"warehouse must be a local folder for {tables}, whose commits are exclusive "
                "on a file system alone; format: iceberg takes any warehouse that its catalog takes"
            )
        if abilities.uses_session_catalog and self.name not in ("", SESSION_CATALOG):
            raise ValueError(f"name must be {SESSION_CATALOG}, or left out, for {tables}")
        return self

    def with_defaults(self, home: Path) -> "CatalogSettings":
        """Returns the same settings with every default filled in."""
        name = self.name or (SESSION_CATALOG if find_format(self.format).abilities.uses_session_catalog else "lake")
        return self.model_copy(update={"name": name, "warehouse": self.warehouse or str(home / "warehouse")})


class CompactAfter(StrictModel):
    """The numbers of files at which a sync or push compacts a table that it wrote to. 0 means never.

    A file counts as small if several like it would fit into one of 128 MiB.
    """

    delete_files: Annotated[int, Field(ge=0, strict=True)] = 4
    small_files: Annotated[int, Field(ge=0, strict=True)] = 100


class SettingsFile(StrictModel):
    """The contents of a settings file.

    Empty means the default. Past states, loads and reports are kept for `keep_history_days`, with 0 for ever.
    `registry` is the path or URL of a connector registry, by default Airbyte's public one. `run_on` is where the
    connectors run whose connection does not say so.
    """

    state_url: str = ""
    lease_seconds: Annotated[float, Field(ge=1, le=_MAX_LEASE_SECONDS, strict=True, allow_inf_nan=False)] = 60.0
    catalog: CatalogSettings = CatalogSettings()
    compact_after: CompactAfter = CompactAfter()
    keep_history_days: Annotated[float, Field(ge=0, le=_MAX_HISTORY_DAYS, strict=True, allow_inf_nan=False)] = 365.0
    spark: dict[str, Annotated[str, BeforeValidator(_spark_value)]] = Field(default_factory=dict)
    registry: Annotated[str, AfterValidator(_from_folder)] = ""
    run_on: RunOn = "driver"

    @field_validator("keep_history_days")
    @classmethod
    def _covers_retries(cls, days: float) -> float:
        if 0 < days < _MIN_HISTORY_DAYS:  # Retries of a run read its reports, and expiry of snapshots its loads.
            raise ValueError(f"must be at least {_MIN_HISTORY_DAYS}, or 0 to keep everything")
        return days

    def has_secrets(self) -> bool:
        """True if it has a password in a URL, or a key or token of Spark's."""
        urls = (self.state_url, self.registry, self.catalog.warehouse)
        return bool(named_secrets(self.spark) or tokens_of(self.spark) or any(map(_LOGIN.search, urls)))

    @field_validator("state_url")
    @classmethod
    def _is_url(cls, url: str, info: ValidationInfo) -> str:
        if url and "://" not in url:  # not shown: a URL may hold a password
            raise ValueError('must be a URL such as "sqlite:///state.db" or "postgresql://host/database"')
        if info.context:
            folder = info.context["folder"].absolute()
            if (found := _RELATIVE_SQLITE.match(url)) is not None:
                name = unquote(url.removeprefix(found[0]).partition("?")[0])
                _check_store_is_not_elsewhere(folder, name)
            return _RELATIVE_SQLITE.sub(lambda found: f"{found[1]}{_url_path(folder)}/", url)
        return url


class Settings(SettingsFile):
    """The settings with every default filled in. Folders are named here and created by the code that needs them.

    `secret_file` is the file that they were read from, if it has secrets."""

    home: Path
    secret_file: Path | None = None

    @classmethod
    def load(cls, home: Path, file: Path | str | None = None) -> "Settings":
        """Returns the settings of a home folder. Raises one ConfigError that names every fault of the file.

        A relative warehouse starts at the file's folder, and so does a relative path in `state_url`.
        """
        home, path = home.absolute(), None if file is None else expanded(file)
        document = Document("settings", {}, {})
        if path is not None:
            document = read_document(path, what="settings file", may_be_empty=True)
        written = validated(SettingsFile, document, folder=path.parent if path else home)
        return cls(
            home=home,
            state_url=written.state_url or _store_url(home / "state.db"),
            lease_seconds=written.lease_seconds,
            catalog=written.catalog.with_defaults(home),
            compact_after=written.compact_after,
            keep_history_days=written.keep_history_days,
            spark=written.spark,
            registry=written.registry or PUBLIC_REGISTRY,
            run_on=written.run_on,
            secret_file=path.absolute() if path and written.has_secrets() else None,
        )

    def make_home(self) -> bool:
        """Makes the home folder if it is not there, and keeps git out of it: it holds states. Returns whether it is
        new. Raises ConfigError, or StagingError where the disk is full."""
        doing = "opening the home folder"
        try:
            is_new = not self.home.is_dir()
            if is_new:
                _make_ignored_folder(self.home)
        except OSError as error:
            found = f"{self.home} cannot be created: {error.strerror}"
            if has_no_room(error):
                raise StagingError(doing, found, remedy="Make room there, then run the command again.") from error
            raise ConfigError(doing, found, remedy="Name another with --home or AIRBYTE_PROTO_HOME.") from error
        return is_new

    @property
    def staging_folder(self) -> Path:
        return self.home / "staging"

    @property
    def catalogs_folder(self) -> Path:
        return self.home / "catalogs"

    @property
    def logs_folder(self) -> Path:
        return self.home / "logs"

    @property
    def registry_folder(self) -> Path:
        """The folder for a connector registry that was fetched."""
        return self.home / "registry"

    @property
    def environments_folder(self) -> Path:
        """The folder for the virtual environments of connector packages."""
        return self.home / "venvs"
