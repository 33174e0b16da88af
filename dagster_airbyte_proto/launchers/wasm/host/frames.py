"""Frames: the memory of the host in which batches lie while they change hands.

A frame is writable, then sealed, then consumed (emitted or dropped); never another way round. Its content is kept as
the chunks in which it came, and joined when it is first needed whole: mostly there is one.
"""

from dagster_airbyte_proto.errors import ProtocolViolation
from dagster_airbyte_proto.launchers.wasm.host.refusals import refusal
from dagster_airbyte_proto.protocols.rapidbyte.component.wire import MAX_FRAME_BYTES
from dagster_airbyte_proto.protocols.rapidbyte.reported_error import ErrorCategory

MAX_FRAMES = 1024
MAX_HELD_BYTES = 1 << 30
"""The limit of all frames of a connector together."""
_JOINED_BYTES = 64 << 10


class _Frame:
    def __init__(self, content: bytes | memoryview = b"", *, is_sealed: bool = False) -> None:
        self.chunks: list[bytes | bytearray | memoryview] = [content] if content else []
        self.size = len(content)
        self.is_sealed = is_sealed

    def add(self, chunk: bytes) -> None:
        """Small chunks are joined: each would take as much memory beside its bytes."""
        self.size += len(chunk)
        last = self.chunks[-1] if self.chunks else None
        if isinstance(last, bytearray) and len(last) < _JOINED_BYTES:
            last += chunk
        else:
            self.chunks.append(chunk if len(chunk) >= _JOINED_BYTES else bytearray(chunk))

    def whole(self) -> bytes | memoryview:
        if len(self.chunks) == 1 and not isinstance(self.chunks[0], bytearray):
            return self.chunks[0]
        joined = b"".join(self.chunks)
        self.chunks = [joined]
        return joined


class Frames:
    """The frames of one connector, by their handles. Methods raise CallRefused."""

    def __init__(self) -> None:
        self._frames: dict[int, _Frame] = {}
        self._next_handle = 1
        self._held_bytes = 0

    def new(self, capacity: int) -> int:
        if capacity > MAX_FRAME_BYTES:
            found = f"a capacity of {capacity} bytes is over the limit of {MAX_FRAME_BYTES}"
            raise refusal(ErrorCategory.FRAME, "FRAME_NEW_FAILED", found)
        if len(self._frames) >= MAX_FRAMES:
            raise refusal(ErrorCategory.FRAME, "FRAME_NEW_FAILED", f"{MAX_FRAMES} frames are open")
        return self._added(_Frame())

    def check_room(self) -> None:
        """Raises CallRefused if the connector has so many frames that it gets no more."""
        if len(self._frames) >= MAX_FRAMES or self._held_bytes >= MAX_HELD_BYTES:
            found = f"it holds {len(self._frames)} frames of {self._held_bytes} bytes: it has to drop some first"
            raise refusal(ErrorCategory.FRAME, "TOO_MANY_FRAMES", found)

    def add_sealed(self, content: bytes | memoryview) -> int:
        """A frame of our own, for the connector to read."""
        self._held_bytes += len(content)
        return self._added(_Frame(content, is_sealed=True))

    def write(self, handle: int, chunk: bytes) -> int:
        """Returns the length of the frame. Raises ProtocolViolation where memory would be gone: see wire.py."""
        frame = self._frame(handle, "FRAME_WRITE_FAILED", is_sealed=False)
        if frame.size + len(chunk) > MAX_FRAME_BYTES:
            found = f"frame {handle} would be over the limit of {MAX_FRAME_BYTES} bytes"
            raise refusal(ErrorCategory.FRAME, "FRAME_WRITE_FAILED", found)
        if self._held_bytes + len(chunk) > MAX_HELD_BYTES:
            # This call may be one that waits for no reply, so a refusal would not reach the connector.
            raise ProtocolViolation("writing a frame", f"the connector holds over {MAX_HELD_BYTES >> 20} MiB of frames")
        frame.add(chunk)
        self._held_bytes += len(chunk)
        return frame.size

    def seal(self, handle: int) -> None:
        self._frame(handle, "FRAME_SEAL_FAILED", is_sealed=False).is_sealed = True

    def length(self, handle: int) -> int:
        return self._frame(handle, "FRAME_LEN_FAILED").size

    def read(self, handle: int, offset: int, count: int) -> bytes | memoryview:
        frame = self._frame(handle, "FRAME_READ_FAILED", is_sealed=True)
        if offset + count > frame.size:
            found = f"out of bounds: offset={offset}, len={count}, frame_len={frame.size}"
            raise refusal(ErrorCategory.FRAME, "FRAME_READ_FAILED", found)
        whole = frame.whole()
        return whole if count == len(whole) else whole[offset : offset + count]

    def drop(self, handle: int) -> None:
        """Safe for a handle that is none."""
        frame = self._frames.pop(handle, None)
        if frame is not None:
            self._held_bytes -= frame.size

    def take(self, handle: int) -> bytes:
        """Consumes a sealed frame."""
        frame = self._frame(handle, "EMIT_BATCH_FAILED", is_sealed=True)
        if not frame.size:
            raise refusal(ErrorCategory.INTERNAL, "EMPTY_BATCH", f"frame {handle} is empty")
        self.drop(handle)
        return bytes(frame.whole())

    def _added(self, frame: _Frame) -> int:
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        self._frames[handle] = frame
        return handle

    def _frame(self, handle: int, code: str, *, is_sealed: bool | None = None) -> _Frame:
        frame = self._frames.get(handle)
        if frame is None:
            raise refusal(ErrorCategory.FRAME, code, f"invalid frame handle: {handle}")
        if is_sealed is not None and frame.is_sealed is not is_sealed:
            state = "not sealed" if is_sealed else "sealed already"
            raise refusal(ErrorCategory.FRAME, code, f"frame {handle} is {state}")
        return frame
