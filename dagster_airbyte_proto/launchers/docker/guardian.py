"""Sees to it that a container does not outlive us. A program of its own, for nothing of a container is our child.

It learns of our death as `guardian.py` does, kill -9 included: the pipe that only we hold ends, or the pidfd of our
process fires. We end the pipe without a word, too, where the daemon was gone when we had to remove the container. Then
it removes the container and its files by their name, whether they are made yet or not. Where it is killed with us (a
whole machine, or the container that we run in ourselves), those that start next find them by their labels.

docker-py is imported when it is needed, and that is hardly ever.
"""

import os
import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress

DONE = b"D"
_PATIENCE_SECONDS = 60.0
_OUTAGE_SECONDS = 3600.0
_LOOK_SECONDS = 0.5


def main(arguments: list[str]) -> None:
    control, owner, name = int(arguments[0]), int(arguments[1]), arguments[2]
    os.set_inheritable(control, False)
    if not _is_done(control, owner):
        _remove(name)


def _is_done(control: int, owner: int) -> bool:
    """Waits until the owner says so, or is no more."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    with suppress(AttributeError, OSError):  # an old kernel, a sandbox, or an owner that is gone: the pipe tells
        poll.register(os.pidfd_open(owner), select.POLLIN)
    if os.getppid() != owner:
        return False
    poll.poll()
    return bool(select.select([control], [], [], 0)[0]) and os.read(control, 1) == DONE


def _remove(name: str) -> None:
    """An owner may have died right before the container was made, so we look for it a while; and a daemon that is gone
    may come back with it, or with its volume alone, which has its name."""
    import docker

    def is_gone(remove: Callable[..., None], **options: bool) -> bool:
        """False where it was not there."""
        try:
            remove(name, **options)
        except docker.errors.NotFound:
            return False
        return True

    was_there, until = False, time.monotonic() + _OUTAGE_SECONDS
    while time.monotonic() < until:
        with suppress(Exception):  # Nobody is left to be told, and the daemon may be on its way back.
            client = docker.APIClient(version="auto", **docker.utils.kwargs_from_env())
            was_there |= is_gone(client.remove_container, v=True, force=True)
            is_gone(client.remove_volume)
            if was_there:
                return
            until = min(until, time.monotonic() + _PATIENCE_SECONDS)
        time.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1:])
