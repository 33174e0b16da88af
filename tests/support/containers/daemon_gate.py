"""A socket to this machine's Docker that can be shut, for tests of a daemon that goes away and comes back."""

import socket
import threading
from contextlib import suppress
from pathlib import Path

_DAEMON = "/var/run/docker.sock"


class Gate:
    """A socket in a folder. Open from the start."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "docker.sock"
        assert len(str(self._path)) < 108, "the most that a socket's path may have"
        self.address = f"unix://{self._path}"
        self._through: list[socket.socket] = []
        self.open()

    def open(self) -> None:
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(self._path))
        self._door.listen()
        threading.Thread(target=self._let_in, args=(self._door,), daemon=True).start()

    def shut(self) -> None:
        """Shuts the gate and cuts all connections."""
        self._path.unlink()
        for each in (self._door, *self._through):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._through.clear()

    def _let_in(self, door: socket.socket) -> None:
        with suppress(OSError):
            while True:
                guest, host = door.accept()[0], socket.socket(socket.AF_UNIX)
                host.connect(_DAEMON)
                self._through += (guest, host)
                for pair in ((guest, host), (host, guest)):
                    threading.Thread(target=_carry, args=pair, daemon=True).start()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
