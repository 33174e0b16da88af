"""S3, and stores with its interface."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from dagster_airbyte_proto.loads.object_stores.store import Place, after_scheme

if TYPE_CHECKING:
    from pyarrow import fs

_CATALOG_CREDENTIALS = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token")
_HADOOP_CREDENTIALS = ("fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token")
_ATTEMPTS = 6
"""The attempts of each request. pyarrow's own three are over after two seconds: too soon for a store that asks to slow
down (503), as S3 does while it spreads new keys, or for a network that is gone for a moment. Six take 15 seconds on
average, and 31 at most. What is refused for good (403, 404) is not tried again."""


class S3:
    """An ObjectStore."""

    schemes: ClassVar[frozenset[str]] = frozenset(("s3", "s3a", "s3n"))
    catalog_settings: ClassVar[tuple[str, ...]] = (
        *_CATALOG_CREDENTIALS,
        "s3.endpoint",
        "s3.path-style-access",
        "client.region",
    )
    hadoop_settings: ClassVar[tuple[str, ...]] = (
        *_HADOOP_CREDENTIALS,
        "fs.s3a.endpoint",
        "fs.s3a.path.style.access",
        "fs.s3a.endpoint.region",
        "fs.s3a.connection.ssl.enabled",
    )
    # All of them: else a session token of ours would be sent with a key that was vended.
    credentials: ClassVar[tuple[str, ...]] = (*_CATALOG_CREDENTIALS, *_HADOOP_CREDENTIALS)
    tokens: ClassVar[tuple[str, ...]] = ("s3.session-token",)
    expiry: ClassVar[str] = "s3.session-token-expires-at-ms"

    def take_apart(self, location: str) -> Place:
        return after_scheme(location)

    def open(self, settings: Mapping[str, str], host: str) -> "fs.FileSystem":  # noqa: ARG002 - a bucket needs no account
        from pyarrow import fs

        def setting(*keys: str) -> str | None:
            return next((settings[key] for key in keys if key in settings), None)

        endpoint = setting("s3.endpoint", "fs.s3a.endpoint")
        scheme, separator, address = (endpoint or "").partition("://")
        if not separator:
            scheme, address = ("http" if setting("fs.s3a.connection.ssl.enabled") == "false" else "https"), scheme
        is_path_style = setting("s3.path-style-access", "fs.s3a.path.style.access") == "true"
        return fs.S3FileSystem(
            access_key=setting("s3.access-key-id", "fs.s3a.access.key"),
            secret_key=setting("s3.secret-access-key", "fs.s3a.secret.key"),
            session_token=setting("s3.session-token", "fs.s3a.session.token"),
            region=setting("client.region", "fs.s3a.endpoint.region"),
            endpoint_override=address.rstrip("/") or None,
            scheme=scheme,
            force_virtual_addressing=bool(address) and not is_path_style,
            # With writes in the background, data piles up in memory without bound when the store is slow.
            background_writes=False,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
            # With it a file of a few megabytes takes one request instead of three.
            allow_delayed_open=True,
        )
