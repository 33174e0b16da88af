import subprocess
import sys

from dagster_airbyte_proto.launchers.stdout_pipe import StdoutPipe

_PIECES = 2_000
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
        chunks = list(iter(pipe.read, b""))
    assert b"".join(chunks) == b"".join(b"%07d\n" % number for number in range(_PIECES))
    assert len(chunks) < _PIECES / 4
