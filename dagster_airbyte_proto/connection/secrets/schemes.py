"""The schemes of secrets that are known: ours, and the entry points of installed packages."""

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from dagster_airbyte_proto.connection.faults import nearest
from dagster_airbyte_proto.connection.secrets.environment import EnvironmentVariables
from dagster_airbyte_proto.connection.secrets.mounted_files import MountedFiles
from dagster_airbyte_proto.connection.secrets.secret_source import SecretContext, SecretSource
from dagster_airbyte_proto.errors import ConfigError

GROUP = "dagster_airbyte_proto.secrets"

_EXTRAS = {"vault": "vault", "aws-sm": "aws"}
_Factory = Callable[[SecretContext], SecretSource]
_ALWAYS_THERE: Mapping[str, _Factory] = {"env": EnvironmentVariables, "file": MountedFiles}


class SchemeSources:
    """The sources of one config, each made when it is first needed.

    Entry points are looked up only then: that reads the metadata of every installed package.
    """

    def __init__(self, context: SecretContext) -> None:
        self._context = context
        self._sources: dict[str, SecretSource] = {}

    def source(self, scheme: str) -> SecretSource:
        """Returns the source of a scheme. Raises ConfigError if it is not known, or needs a package that is missing."""
        if self._context.known is not None:
            return _ReadElsewhere(scheme, self._context.known)
        if scheme not in self._sources:
            self._sources[scheme] = _factory(scheme)(self._context)
        return self._sources[scheme]


class _ReadElsewhere:
    """The secrets of one scheme that another process has read."""

    def __init__(self, scheme: str, known: Mapping[str, str]) -> None:
        self._scheme, self._known = scheme, known

    def secret(self, reference: str) -> str:
        name = f"{self._scheme}:{reference}"
        if name not in self._known:
            raise ConfigError("", f'"${{{name}}}" was not read by the driver')
        return self._known[name]


def known_schemes() -> list[str]:
    """Returns the names of all schemes, also of those that need a package that is missing."""
    return [*_ALWAYS_THERE, *sorted({point.name for point in entry_points(group=GROUP)} - _ALWAYS_THERE.keys())]


def _factory(scheme: str) -> _Factory:
    if ours := _ALWAYS_THERE.get(scheme):
        return ours
    for point in entry_points(group=GROUP):
        if point.name == scheme:
            return _loaded(point)
    known = known_schemes()
    meant = nearest(scheme, known)
    hint = f'; did you mean "${{{meant}:…}}"?' if meant else "."
    raise ConfigError(
        "",
        f'"${{{scheme}:…}}" is no known kind of secret{hint} Known: {", ".join(known)}',
        remedy=f'For the text itself write "$${{{scheme}:…}}".',
    )


def _loaded(point: EntryPoint) -> _Factory:
    try:
        return cast(_Factory, point.load())
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(point.name)
        package = f'"dagster_airbyte_proto[{extra}]"' if extra else f"{error.name}"
        found = f'"${{{point.name}:…}}" needs the Python module {error.name}, which is not installed'
        raise ConfigError("", f"{found}: pip install {package}") from error
