"""A source in Python, for tests. `componentize-py` makes a component of it; nothing here runs as it stands."""
# mypy: ignore-errors

import json
import os
import socket
import time
from pathlib import Path

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import host, types

_CONFIG: dict = {}


def _error(code):
    return Err(
        types.ConnectorError(
            types.ErrorCategory.AUTH, types.ErrorScope.PER_RECORD, code, "told to", True, 5, types.BackoffClass.FAST,
            False, types.CommitState.BEFORE_COMMIT, '{"a": 1}',
        )
    )  # fmt: skip


def _attempt(name, action):
    try:
        host.log(2, f"{name}: {action()}")
    except Exception as error:
        host.log(2, f"{name}: refused ({type(error).__name__})")


def _surroundings():
    _attempt("variables", lambda: dict(os.environ))
    _attempt("file", lambda: Path("/etc/passwd").read_text())
    _attempt("folder", lambda: sorted(os.listdir(_CONFIG.get("folder", "/"))))
    _attempt("outside", lambda: sorted(os.listdir(_CONFIG.get("folder", "/") + "/..")))
    _attempt("write", lambda: Path(_CONFIG.get("folder", "/") + "/written").write_text("x"))
    _attempt("link", lambda: Path(_CONFIG.get("folder", "/") + "/link/passwd").read_text())
    _attempt("tcp", lambda: socket.create_connection(("127.0.0.1", _CONFIG.get("port", 9)), 2))
    _attempt("udp", lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9)))
    _attempt("own link", lambda: os.symlink("..", _CONFIG.get("folder", "/") + "/up"))
    _attempt("by own link", lambda: os.listdir(_CONFIG.get("folder", "/") + "/up"))


class Source(exports.Source):
    def open(self, config_json):
        _CONFIG.update(json.loads(config_json))
        if _CONFIG.get("fail"):
            raise _error("NOPE")
        return 7

    def discover(self, session):
        return json.dumps({"streams": [{"name": "t", "supported_sync_modes": ["full_refresh"]}]})

    def validate(self, session):
        return types.ValidationReport(types.ValidationStatus.WARNING, "ok", ["w"])

    def run(self, session, request):
        mode = _CONFIG.get("mode", "batch")
        print("a print of the guest")
        if mode == "surroundings":
            _surroundings()
        elif mode == "sleep":
            time.sleep(600)
        elif mode == "panic":
            raise RuntimeError("the guest is at its end")
        elif mode == "forge":
            for _ in range(100):
                os.write(1, bytes.fromhex(_CONFIG["forged"]))
        elif mode == "stdin":
            os.read(0, 100)
        else:
            data = bytes.fromhex(_CONFIG["ipc"])
            handle = host.frame_new(len(data))
            host.frame_write(handle, data)
            host.frame_seal(handle)
            host.emit_batch(handle)
            host.checkpoint(0, json.dumps({"id": 1, "cursor_field": None}))
        return types.RunSummary(types.ConnectorRole.SOURCE, types.ReadSummary(3, 2, 1, 1, 0), None, None)

    def close(self, session):
        pass
