"""`${file:/run/secrets/password}`: secrets that Docker, Kubernetes or systemd mount as files.

1. A relative path starts at the folder of the connection file. A connection that was made in code has no such folder,
   and the working directory of a Dagster run is nobody's choice: there a relative path is refused.
2. One line end at the end is no part of the secret: editors and `echo` put it there.
3. The file is opened without blocking and then looked at, so a FIFO or a device cannot hold the run up.
"""

import os
import stat
from pathlib import Path

from dagster_airbyte_proto.connection.secrets.secret_source import SecretContext
from dagster_airbyte_proto.errors import ConfigError

# Kubernetes and Docker allow 1 MiB and 500 kB. A file of more is not the one that was meant.
_MAX_BYTES = 1024 * 1024


class MountedFiles:
    """Secrets from files, each the whole text of one."""

    def __init__(self, context: SecretContext) -> None:
        self._folder = context.folder

    def secret(self, reference: str) -> str:
        path = self._path(reference)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise ConfigError("", f"there is no file {path}") from None
        except OSError as error:
            raise ConfigError("", f"cannot read {path}: {error.strerror}") from None
        try:
            return _text(path, _content(path, descriptor))
        finally:
            os.close(descriptor)

    def _path(self, reference: str) -> Path:
        path = Path(reference)
        if not reference or "\0" in reference:
            raise ConfigError("", '"${file:…}" must hold the path of a file')
        if path.is_absolute():
            return path
        if self._folder is None:
            found = f"the path {reference} is relative, and the connection was not read from a file"
            raise ConfigError("", found, remedy="Write an absolute path.")
        return self._folder.absolute() / path


def _content(path: Path, descriptor: int) -> bytes:
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(kind):
        raise ConfigError("", f"{path} is a folder")
    if not stat.S_ISREG(kind):
        raise ConfigError("", f"{path} is no regular file")
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ConfigError("", f"{path} has more than {_MAX_BYTES // 1024 // 1024} MiB, which is no secret")
    return content


def _text(path: Path, content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ConfigError("", f"{path} is not text in UTF-8") from None
    return text.removesuffix("\n").removesuffix("\r")
