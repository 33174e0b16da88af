"""Frames of bytes over a socket: a length of eight bytes, and the content."""

import socket
import struct

_LENGTH = struct.Struct(">Q")
MAX_FRAME_BYTES = 1 << 30
"""The longest frame. The keys of a load of some ten million rows fit into it."""

_CHUNK = 1 << 20
_WITHIN_A_MINUTE = (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 60_000))


class ChannelClosed(OSError):
    """The other side has gone, or sends no frames of ours."""


def send_frame(connection: socket.socket, content: bytes) -> None:
    """Sends one frame. Raises OSError."""
    if len(content) > MAX_FRAME_BYTES:
        raise ValueError(f"a message of {len(content):,} bytes; {MAX_FRAME_BYTES:,} are the most")
    connection.sendall(_LENGTH.pack(len(content)))
    connection.sendall(content)


def receive_frame(connection: socket.socket, most: int = MAX_FRAME_BYTES) -> bytes:
    """Receives one frame of at most so many bytes. Raises OSError."""
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if length > most:
        raise ChannelClosed(f"a message of {length:,} bytes; {most:,} are the most")
    return _exactly(connection, length)


def keep_alive(connection: socket.socket) -> None:
    """Has the kernel find out, within a minute, that the other machine is gone.

    By itself it looks for no sign of life while bytes are on their way, but sends them again for a quarter of an hour.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in _WITHIN_A_MINUTE:
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _exactly(connection: socket.socket, length: int) -> bytes:
    # It grows with what has come: a length alone takes no memory.
    received = bytearray()
    while len(received) < length:
        chunk = connection.recv(min(_CHUNK, length - len(received)))
        if not chunk:
            raise ChannelClosed("the other side closed the connection")
        received += chunk
    return bytes(received)
