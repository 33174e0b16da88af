"""A network between tasks and their driver that breaks at a chosen request."""

import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from dagster_airbyte_proto.sync.cluster.sync_task import run_sync_task
from dagster_airbyte_proto.tables.tasks import Task
from dagster_airbyte_proto.testing.folder.process_tasks import ProcessTasks

_LOOPBACK = "127.0.0.1"
_RESET = struct.pack("ii", 1, 0)


class CutNetwork:
    """Passes on what tasks send to a port, and what comes back. All connections break at the request of this number.

    With `reaches_driver` the request arrives and its answer is lost; else it does not arrive.
    """

    def __init__(self, port: int, cut_at: int, *, reaches_driver: bool) -> None:
        self._driver_port = port
        self._cut_at = cut_at
        self._reaches_driver = reaches_driver
        self._requests = 0
        self._counting = threading.Lock()
        self._open: list[socket.socket] = []
        self._listening = socket.create_server((_LOOPBACK, 0))
        self.port: int = self._listening.getsockname()[1]
        self.has_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                task, _ = self._listening.accept()
                driver = socket.create_connection((_LOOPBACK, self._driver_port))
                self._open += [task, driver]
                threading.Thread(target=self._answers, args=(driver, task), daemon=True).start()
                threading.Thread(target=self._requests_of, args=(task, driver), daemon=True).start()

    def _requests_of(self, task: socket.socket, driver: socket.socket) -> None:
        with suppress(OSError):
            while data := task.recv(1 << 16):
                is_cut = self._is_chosen()
                if is_cut and self._reaches_driver:
                    _reset(task)
                if not is_cut or self._reaches_driver:
                    driver.sendall(data)
                if is_cut:
                    self._break()
        _end(driver)

    def _answers(self, driver: socket.socket, task: socket.socket) -> None:
        with suppress(OSError):
            while data := driver.recv(1 << 16):
                task.sendall(data)
        _end(task)

    def _is_chosen(self) -> bool:
        with self._counting:
            self._requests += 1
            is_chosen = self._requests == self._cut_at
            self.has_cut |= is_chosen
            return is_chosen

    def _break(self) -> None:
        # Those to the driver end in order, after what was sent.
        for number, each in enumerate(self._open):
            _end(each) if number % 2 else _reset(each)
        self._open.clear()


class CutOffTasks(ProcessTasks):
    """Tasks that reach their driver over such a network."""

    def __init__(self, cut_at: int, *, reaches_driver: bool) -> None:
        super().__init__()
        self._cut_at, self._reaches_driver = cut_at, reaches_driver
        self.network: CutNetwork

    def run(self, task: Task, count: int, tag: str) -> str:
        assert isinstance(task, partial)
        [accesses] = task.args
        assert isinstance(accesses, Sequence)
        self.network = CutNetwork(accesses[0].port, self._cut_at, reaches_driver=self._reaches_driver)
        try:
            over = [each._replace(port=self.network.port) for each in accesses]
            return super().run(partial(run_sync_task, over), count, tag)
        finally:
            self.network.close()


def _reset(connection: socket.socket) -> None:
    """Breaks a connection, so that the other side notices at once."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        connection.shutdown(socket.SHUT_RDWR)
        connection.close()


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
