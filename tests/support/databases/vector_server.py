"""A PostgreSQL server with the extension `vector`, and what `airbyte-destination-pgvector` wants beside it."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha1
from pathlib import Path
from tempfile import TemporaryDirectory

from dagster_airbyte_proto.launchers.packages.environments import PinnedPackage, ensure_environment
from tests.support.postgres import PostgresServer, running_server


@contextmanager
def running_vector_server(environments: Path) -> Iterator[PostgresServer]:
    """A server with the extension, which a wheel of the package index brings."""
    package = PinnedPackage.of("pgserver==0.1.4")
    environment = ensure_environment(package, cache=environments, python=None)
    with TemporaryDirectory(prefix="pgserver-") as copied:  # The environment is closed to the user of the server.
        Path(copied).chmod(0o755)
        for name in ("pgserver", "pgserver.libs"):
            shutil.copytree(next(environment.glob(f"lib/python*/site-packages/{name}")), Path(copied, name))
        with running_server(Path(copied, "pgserver", "pginstall", "bin")) as server:
            server.ask("CREATE EXTENSION vector")
            yield server


def write_tokenizer(folder: Path) -> None:
    """The tokenizer that the destination would fetch from the network: one that knows pairs of bytes.

    It looks for it in the folder that TIKTOKEN_CACHE_DIR names.
    """
    printable = [each for each in range(256) if chr(each).isprintable() and chr(each) != " "]
    others = [each for each in range(256) if each not in printable]
    signs = [*map(chr, printable), *(chr(256 + number) for number in range(len(others)))]
    pairs = [(first, second) for first in signs for second in signs][:50_000]
    ranks = {text: rank for rank, text in enumerate([*signs, *(first + second for first, second in pairs)])}
    merges = "".join(f"{first} {second}\n" for first, second in pairs)
    for name, content in (("vocab.bpe", f"#version\n{merges}"), ("encoder.json", json.dumps(ranks))):
        url = f"https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/{name}"
        (folder / sha1(url.encode(), usedforsecurity=False).hexdigest()).write_text(content)
