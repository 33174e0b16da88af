"""Ports of this machine for the servers of tests."""

import socket
from collections.abc import Sequence
from contextlib import ExitStack


def free_port() -> int:
    """Returns a port that nobody listens on. Another program may take it before the server of the test does."""
    return free_ports(1)[0]


def free_ports(count: int) -> Sequence[int]:
    """Returns several different ones."""
    with ExitStack() as opened:
        bound = [opened.enter_context(socket.socket()) for _ in range(count)]
        for each in bound:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in bound]
