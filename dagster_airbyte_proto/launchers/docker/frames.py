"""What a container writes, out of the frames in which the daemon sends it: eight bytes of header, then a payload."""

_HEADER_BYTES = 8


class Frames:
    """Takes the bytes of one attached stream as they come, and gives what the container wrote."""

    def __init__(self) -> None:
        self._header = b""
        self._left = 0

    def feed(self, chunk: bytes) -> bytes:
        """What is payload in a chunk. A header may be cut anywhere."""
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
