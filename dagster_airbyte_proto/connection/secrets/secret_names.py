"""Names of settings that sound secret, where nothing declares which are."""

import re

_SECRET_NAME = re.compile(
    r"passw|passphrase|secret|token|api[_-]?key|private[_-]?key|access[_-]?key|credential", re.IGNORECASE
)


def sounds_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None
