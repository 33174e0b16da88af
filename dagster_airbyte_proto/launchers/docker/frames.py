"""Unpacks the frames in which the daemon sends a container's output: an eight-byte header, then a payload."""

_HEADER_BYTES = 8


class FrameDecoder:
    """Decodes the frames of one attached stream, in chunks of any size."""

    def __init__(self) -> None:
        self._header = b""
        self._left = 0

    def feed(self, chunk: bytes) -> bytes:
        """Returns the payload bytes in a chunk. A chunk may end anywhere, also inside a header."""
        found, at, end = [], 0, len(chunk)
        while at < end:
            if not self._left:
                take = _HEADER_BYTES - len(self._header)
                self._header += chunk[at : at + take]
                at += take
                if len(self._header) < _HEADER_BYTES:
                    break
                self._left, self._header = int.from_bytes(self._header[4:]), b""
            payload = chunk[at : at + self._left]
            found.append(payload)
            at += len(payload)
            self._left -= len(payload)
        return found[0] if len(found) == 1 else b"".join(found)
