"""A PostgreSQL server behind a door that is shut at a chosen moment: after a COMMIT, before its answer."""

import socket
import threading
from contextlib import suppress

_COMMIT = b"COMMIT\0"


class CutConnections:
    """Listens on a port, and passes on what comes to a server's port and what comes back.

    The server carries out the `cut_at`-th COMMIT from now on; its answer is lost, with the connection.
    """

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._counting = threading.Lock()
        self._left = 0
        self.has_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_at(self, commit: int) -> None:
        self._left, self.has_cut = commit, False

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        is_cut = threading.Event()

        def answer() -> None:
            with suppress(OSError):
                while (data := server.recv(65536)) and not is_cut.is_set():
                    client.sendall(data)
            _shut(client)

        threading.Thread(target=answer, daemon=True).start()
        with suppress(OSError):
            while data := client.recv(65536):
                if _COMMIT in data and self._is_chosen():
                    is_cut.set()
                server.sendall(data)
        _shut(server)

    def _is_chosen(self) -> bool:
        with self._counting:
            self._left -= 1
            is_chosen = self._left == 0
            self.has_cut |= is_chosen
            return is_chosen


def _shut(connection: socket.socket) -> None:
    # A close alone would not wake the thread that waits for more of it.
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
