"""Google Cloud Storage."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

from dagster_airbyte_proto.loads.object_stores.store import Place, after_scheme

if TYPE_CHECKING:
    from pyarrow import fs

_TOKEN = "gcs.oauth2.token"  # noqa: S105 - the name of a setting
_NO_AUTH = "gcs.no-auth"
# pyarrow's own limit is a quarter of an hour for each call to a store that does not answer.
_RETRIED_FOR = timedelta(minutes=1)
# pyarrow wants to know when a token expires, and asks for another one of its own then. Who vends it renews it.
_FAR_AWAY = datetime(2100, 1, 1, tzinfo=UTC)


class Gcs:
    """An ObjectStore. Without a token, and where it is not told to be nobody, it asks as the environment says."""

    schemes: ClassVar[frozenset[str]] = frozenset(("gs", "gcs"))
    catalog_settings: ClassVar[tuple[str, ...]] = (_TOKEN, _NO_AUTH, "gcs.service.host", "gcs.project-id")
    hadoop_settings: ClassVar[tuple[str, ...]] = ()
    credentials: ClassVar[tuple[str, ...]] = (_TOKEN, _NO_AUTH)
    tokens: ClassVar[tuple[str, ...]] = (_TOKEN,)
    expiry: ClassVar[str] = "gcs.oauth2.token-expires-at"

    def take_apart(self, location: str) -> Place:
        return after_scheme(location)

    def open(self, settings: Mapping[str, str], host: str) -> "fs.FileSystem":  # noqa: ARG002 - a bucket needs no account
        from pyarrow import fs

        scheme, separator, address = settings.get("gcs.service.host", "").partition("://")
        token = settings.get(_TOKEN)
        return fs.GcsFileSystem(
            anonymous=not token and settings.get(_NO_AUTH) == "true",
            access_token=token,
            credential_token_expiration=_FAR_AWAY if token else None,
            scheme=scheme if separator else "https",
            endpoint_override=address.rstrip("/") or None,
            project_id=settings.get("gcs.project-id"),
            retry_time_limit=_RETRIED_FOR,
        )
