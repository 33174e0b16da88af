"""An object store: its locations, the settings that are read for it, and its file systems."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    from pyarrow import fs


class Place(NamedTuple):
    """A location, taken apart. `host` is that of the account that has it, where locations name one."""

    path: str
    host: str = ""


class ObjectStore(Protocol):
    """One kind of object store.

    - A setting that ends with a dot stands for all that begin so: the name of an account follows.
    - `catalog_settings` are those of an Iceberg catalog, `hadoop_settings` are read where the catalog has no such.
    - `credentials` are those settings that vended ones replace as a whole; `tokens` are those of them that are good for
      a limited time. `expiry` is the setting by which a catalog tells until when, in milliseconds since 1970.
    """

    schemes: ClassVar[frozenset[str]]
    catalog_settings: ClassVar[tuple[str, ...]]
    hadoop_settings: ClassVar[tuple[str, ...]]
    credentials: ClassVar[tuple[str, ...]]
    tokens: ClassVar[tuple[str, ...]]
    expiry: ClassVar[str]

    def take_apart(self, location: str) -> Place:
        """Raises ValueError for a location that names no place in the store."""
        ...

    def open(self, settings: Mapping[str, str], host: str) -> "fs.FileSystem":
        """Opens the file system of an account's host. Connects to nothing yet."""
        ...


def is_named(setting: str, names: Collection[str]) -> bool:
    """True if a setting is among the names, or begins with one that ends with a dot."""
    return any(setting == name or (name.endswith(".") and setting.startswith(name)) for name in names)


def scheme_of(location: str) -> str:
    """Returns the scheme of a location; empty if it has none."""
    scheme, separator, _ = location.partition("://")
    return scheme if separator else ""


def after_scheme(location: str) -> Place:
    """Takes a location apart whose path begins with a bucket, which is known in the whole store.

    Not parsed as a URI: a key or a path may hold blanks and percent signs, which Iceberg takes as they are.
    """
    return Place(location.partition("://")[2])
