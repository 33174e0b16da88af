"""Where everything lives, and what the tables are kept by: a home folder and a small settings file."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from dagster_airbyte_proto.connection.document import Document, read_document
from dagster_airbyte_proto.connection.validation import Written, validated

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+._-]*:")
_LOCAL = ("delta", "parquet", "folder")
IN_SESSION_CATALOG = ("delta", "parquet")
SESSION_CATALOG = "spark_catalog"
"""What Spark's own catalog is called, by which it knows tables of those formats."""


def _from_folder(place: str, info: ValidationInfo) -> str:
    is_path = place and not _URL.match(place) and info.context
    return str(info.context["folder"] / Path(place).expanduser()) if is_path and info.context else place


def _spark_value(value: Any) -> Any:
    """Spark's settings are text, and a user writes `true` and `4` without quotes."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


class CatalogSettings(Written):
    """The Spark catalog of the tables. `name` is empty for the format's own. `warehouse` is a folder or a URL; empty,
    it is the home's own."""

    name: str = ""
    format: Literal["iceberg", "delta", "parquet", "folder"] = "iceberg"
    warehouse: str = ""

    @field_validator("name")
    @classmethod
    def _plain_name(cls, name: str) -> str:
        if name and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError('must be of letters, digits and "_", and not begin with a digit')
        return name

    @field_validator("warehouse")
    @classmethod
    def _from_the_file(cls, warehouse: str, info: ValidationInfo) -> str:
        if not warehouse or _URL.match(warehouse) or not info.context:
            return warehouse
        return str((info.context["folder"] / warehouse).absolute())

    @model_validator(mode="after")
    def _fits_the_format(self) -> Self:
        if self.format in _LOCAL and _URL.match(self.warehouse):
            raise ValueError(
                f"warehouse must be a local folder for tables of the format {self.format}, whose commits are exclusive "
                "on a file system alone; format: iceberg takes any that its catalog does"
            )
        if self.format in IN_SESSION_CATALOG and self.name not in ("", SESSION_CATALOG):
            raise ValueError(f"name must be {SESSION_CATALOG}, or left out, for tables of the format {self.format}")
        return self

    def filled(self, home: Path) -> "CatalogSettings":
        """With every default."""
        name = self.name or (SESSION_CATALOG if self.format in IN_SESSION_CATALOG else "lake")
        return self.model_copy(update={"name": name, "warehouse": self.warehouse or str(home / "warehouse")})


class CompactAfter(Written):
    """When a sync compacts a table that it wrote to: at so many of these files, and never for 0.

    A file is small as far as several would go into one of 128 MiB.
    """

    delete_files: Annotated[int, Field(ge=0, strict=True)] = 4
    small_files: Annotated[int, Field(ge=0, strict=True)] = 100


class SettingsFile(Written):
    """What a settings file may hold; empty means the default. `registry` is the path or URL of a connector registry."""

    state_url: str = ""
    lease_seconds: Annotated[float, Field(ge=1, strict=True, allow_inf_nan=False)] = 60.0
    catalog: CatalogSettings = CatalogSettings()
    compact_after: CompactAfter = CompactAfter()
    spark: dict[str, Annotated[str, BeforeValidator(_spark_value)]] = Field(default_factory=dict)
    registry: Annotated[str, AfterValidator(_from_folder)] = ""

    @field_validator("state_url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        if url and "://" not in url:  # not shown: a URL may hold a password
            raise ValueError('must be a URL such as "sqlite:///state.db" or "postgresql://host/database"')
        return url


class Settings(SettingsFile):
    """The settings with every default filled. Folders are named here; whoever needs one makes it."""

    home: Path

    @classmethod
    def load(cls, home: Path, file: Path | None = None) -> "Settings":
        """The settings of a home folder; raises one ConfigError that tells every fault of the file.

        A relative warehouse starts at the file's folder.
        """
        home = home.absolute()
        document = Document("settings", {}, {})
        if file is not None:
            document = read_document(file, what="settings file", may_be_empty=True)
        written = validated(SettingsFile, document, folder=file.parent if file else home)
        return cls(
            home=home,
            state_url=written.state_url or f"sqlite:///{home / 'state.db'}",
            lease_seconds=written.lease_seconds,
            catalog=written.catalog.filled(home),
            compact_after=written.compact_after,
            spark=written.spark,
            registry=written.registry,
        )

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
        """Where a connector registry is kept that was fetched."""
        return self.home / "registry"

    @property
    def environments_folder(self) -> Path:
        """Where launchers keep the virtual environments of packages."""
        return self.home / "venvs"
