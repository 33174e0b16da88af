"""A server that falls silent: it takes connections and requests, and answers none any more."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_CHUNK = 65_536


class SilentProxy:
    """Passes bytes between clients and a server. Without a server it is silent from the beginning."""

    def __init__(self, upstream_port: int | None = None) -> None:
        self._upstream_port = upstream_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._opened: list[socket.socket] = []
        self._cuts: dict[socket.socket, threading.Event] = {}
        self._mark, self._passes, self._for_good, self._before = b"", False, False, 0
        self._is_silent = upstream_port is None

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    def fall_silent(self, mark: bytes, *, passes_request: bool, for_good: bool = True, before: int = 0) -> None:
        """From the next request with the mark on, its connection is silent, and all others if it is `for_good`. Either
        the server still gets that request, or it gets nothing. So many requests with the mark are answered `before`."""
        self._mark, self._passes, self._for_good, self._before = mark, passes_request, for_good, before

    def speak(self) -> None:
        """Ends the silence, as a server that has started again: connections that were silent are closed. A client may
        have kept some that it was not using then."""
        self._is_silent, self._mark = False, b""
        for client, is_cut in list(self._cuts.items()):
            if is_cut.is_set():
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)

    def serve(self) -> None:
        with suppress(OSError):  # Closed.
            while True:
                client, _ = self._listening.accept()
                self._opened.append(client)
                if not self._is_silent:
                    self._join(client)

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        for each in (self._listening, *self._opened):
            each.close()

    def _join(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self._upstream_port or 0))
        self._opened.append(server)
        is_cut = self._cuts[client] = threading.Event()
        for ends in ((client, server), (server, client)):
            threading.Thread(target=self._pass, args=(*ends, client, is_cut), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, client: socket.socket, is_cut: threading.Event) -> None:
        with suppress(OSError):
            while chunk := source.recv(_CHUNK):
                is_marked = bool(source is client and self._mark and self._mark in chunk)
                if is_marked and self._before:
                    self._before -= 1
                elif is_marked:
                    self._mark, self._is_silent = b"", self._for_good
                    for each in list(self._cuts.values()) if self._for_good else [is_cut]:
                        each.set()
                if not is_cut.is_set() or (source is client and self._passes):
                    sink.sendall(chunk)
            if not is_cut.is_set():
                sink.shutdown(socket.SHUT_WR)


@contextmanager
def silent_proxy(upstream_port: int | None = None) -> Iterator[SilentProxy]:
    """Yields a running one before the server at a port of this machine."""
    proxy = SilentProxy(upstream_port)
    threading.Thread(target=proxy.serve, daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.close()
