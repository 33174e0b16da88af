"""The page "Write a connector", as printed: its files and its commands, in their order."""

import json
import shlex
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from dagster_airbyte_proto.model import TableName
from dagster_airbyte_proto.testing.folder import FOLDER_FORMAT
from dagster_airbyte_proto.testing.folder.tables import FolderTables
from tests.support.needs import lacks
from tests.test_docs import Snippet, snippets

# A fresh machine that is busy took more than 15 minutes.
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

_PAGE = "docs/write-a-connector.md"
_PRINTED_PORT = "8765"


def _script(port: str) -> str:
    """Follows the page from its top to its end, in one shell. What it installs is there already."""
    parts = ["exec 9> commands", "BASH_XTRACEFD=9", "set -euxo pipefail", "trap 'kill $(jobs -p)' EXIT"]
    found: list[Snippet] = [each.values[0] for each in snippets("bash", "json", "yaml", "python")]
    for snippet in (each for each in found if each.page == _PAGE):
        if snippet.title:
            parts.append(f"cat > {shlex.quote(snippet.title)} <<'END OF FILE'\n{snippet.text}END OF FILE")
        else:
            parts += [line for line in snippet.text.splitlines() if not line.startswith("pip install ")]
    # The folder of the connector has the settings too: tables of Parquet and no Spark.
    whole = "\n".join(parts).replace("\ncd orders\n", "\ncd orders\ncp ../airbyte-proto.yaml .\n")
    return whole.replace(_PRINTED_PORT, port)


def test_the_page_is_followed_to_its_end(tmp_path: Path) -> None:
    if find_spec("componentize_py") is None:
        lacks("componentize-py", "no componentize-py (pip install componentize-py)")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    (tmp_path / "airbyte-proto.yaml").write_text(json.dumps({"catalog": {"format": FOLDER_FORMAT}}))
    programs = Path(sys.executable).parent
    # Into a file, where a server that the page starts keeps nobody waiting for its end.
    output = tmp_path / "output"
    with output.open("w") as printed:
        done = subprocess.run(
            ["timeout", "1500", "bash", "-c", _script(port)],
            cwd=tmp_path,
            env={"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(tmp_path)},
            stdout=printed,
            stderr=subprocess.STDOUT,
            check=False,
        )
    shown = output.read_text()
    assert done.returncode == 0, shown[-5000:] + (tmp_path / "commands").read_text()[-1000:]
    assert "there are 2 orders" in shown
    assert "hosts of its config" in shown
    rows = FolderTables(tmp_path / "orders" / ".airbyte-proto" / "warehouse").rows(TableName("orders", "orders"))
    assert sorted(rows.select(["id", "customer", "amount"]).to_pylist(), key=lambda row: int(row["id"])) == [
        {"id": 1, "customer": "Ada", "amount": 12.5},
        {"id": 2, "customer": "Grace", "amount": None},
        {"id": 3, "customer": "Edsger", "amount": 7.0},
    ]
    made_up = FolderTables(tmp_path / "orders" / ".airbyte-proto" / "warehouse").rows(TableName("orders", "readings"))
    assert made_up.num_rows == 1000
