"""Azure Data Lake Storage: `abfss://container@account.dfs.core.windows.net/path`."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from dagster_airbyte_proto.loads.object_stores.store import Place

if TYPE_CHECKING:
    from pyarrow import fs

_ACCOUNT, _KEY = "adls.auth.shared-key.account.name", "adls.auth.shared-key.account.key"
# Each is followed by the host of an account.
_SAS_TOKEN, _ENDPOINT = "adls.sas-token.", "adls.connection-string."
_HADOOP_KEY = "fs.azure.account.key."
_DFS, _BLOB = "dfs.", "blob."


class Adls:
    """An ObjectStore. Without a key or a token of the account it asks as the environment says."""

    schemes: ClassVar[frozenset[str]] = frozenset(("abfs", "abfss", "wasb", "wasbs"))
    catalog_settings: ClassVar[tuple[str, ...]] = (_ACCOUNT, _KEY, _SAS_TOKEN, _ENDPOINT)
    hadoop_settings: ClassVar[tuple[str, ...]] = (_HADOOP_KEY,)
    credentials: ClassVar[tuple[str, ...]] = (_ACCOUNT, _KEY, _SAS_TOKEN, _HADOOP_KEY)
    tokens: ClassVar[tuple[str, ...]] = (_SAS_TOKEN,)
    expiry: ClassVar[str] = "adls.sas-token-expires-at-ms."

    def take_apart(self, location: str) -> Place:
        # As Iceberg does. Not parsed as a URI: a path may hold blanks and percent signs, which are taken as they are.
        authority, slash, path = location.partition("://")[2].partition("/")
        container, _, host = authority.partition("@")
        if not container or not host:
            raise ValueError(
                f"{location} names no container and account: abfss://container@account.dfs.core.windows.net/…"
            )
        return Place(container + slash + path, host)

    def open(self, settings: Mapping[str, str], host: str) -> "fs.FileSystem":
        from pyarrow import fs

        account = host.partition(".")[0]
        token = next(_of_account(settings, _SAS_TOKEN, host), None)
        key = settings.get(_KEY) if settings.get(_ACCOUNT) in (account, None) else None
        key = None if token else key or next(_of_account(settings, _HADOOP_KEY, host), None)
        # pyarrow joins it to URLs as it is.
        query = f"?{token.removeprefix('?')}" if token else None
        addresses = _addresses(next(_of_account(settings, _ENDPOINT, host), ""), host)
        return fs.AzureFileSystem(account, account_key=key, sas_token=query, **addresses)


def _of_account(settings: Mapping[str, str], prefix: str, host: str) -> Iterator[str]:
    """Yields the setting of an account, which is called by its host, or by its name alone."""
    for name in (host, host.partition(".")[0]):
        if value := settings.get(prefix + name):
            yield value


def _addresses(endpoint: str, host: str) -> Mapping[str, str]:
    """Returns the addresses of the account's two services. An endpoint with a path is that of an emulator, which has
    both at one address."""
    address = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint or host}")
    if address.path.strip("/"):
        dfs = blob = address.netloc
    else:
        domain = address.netloc.partition(".")[2]
        dfs, blob = f".{domain}", f".{_BLOB}{domain.removeprefix(_DFS)}"
    services = {"dfs": dfs, "blob": blob}
    return {
        **{f"{service}_storage_authority": authority for service, authority in services.items()},
        **{f"{service}_storage_scheme": address.scheme for service in services},
    }
