import subprocess
import sys
import time

from dagster_airbyte_proto.launchers.stdout_pipe import StdoutPipe

_PIECES = 2_000
_PAUSE_SECONDS = 0.01
_WRITER = f"""
import os, time
for number in range({_PIECES}):
    os.write(1, b"%07d\\n" % number)
    time.sleep(0.0005)
"""


def test_what_a_program_writes_little_by_little_comes_in_few_chunks() -> None:
    with subprocess.Popen([sys.executable, "-c", _WRITER], stdout=subprocess.PIPE, bufsize=0) as writer:
        assert writer.stdout is not None
        pipe = StdoutPipe(writer.stdout)
        began = time.monotonic()
        chunks = list(iter(pipe.read, b""))
        seconds = time.monotonic() - began
    assert b"".join(chunks) == b"".join(b"%07d\n" % number for number in range(_PIECES))
    # One after each pause: on a slow machine it writes for longer, and so there are more of them.
    assert len(chunks) <= 1 + seconds / _PAUSE_SECONDS
