"""A stand-alone program that makes sure a container does not outlive us (its owner).

1. It notices our death as `local/guardian.py` does, kill -9 included: the control pipe, whose only writer we are, ends,
   or the pidfd of our process fires. We also close the pipe without `DONE` if the daemon was down when we had to remove
   the container.
2. It then removes the container and its volume by their name, even if they are only about to be created.
3. If it is killed together with us (the whole machine, or the container that we run in), a later launch finds the
   container by its labels.

docker-py is imported only when it is needed, which is hardly ever: the guardian starts fast and stays small. It is
looked for where its owner has it: an isolated Python sees no packages of the user, nor those of PYTHONPATH.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

DONE = b"D"
_REMOVAL_SECONDS = 60.0
_OUTAGE_SECONDS = 3600.0
_RETRY_SECONDS = 0.5


def main(arguments: list[str]) -> None:
    control, owner, name, *search_path = arguments
    os.set_inheritable(int(control), False)
    # A service manager signals every process of a service at once. The end of our owner says when to act.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if not _wait_for_owner(int(control), int(owner)):
        _remove(name, search_path)


def _wait_for_owner(control: int, owner: int) -> bool:
    """Waits for the owner. Returns True if it reported `DONE`, False if it died or gave up."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    with suppress(AttributeError, OSError):  # an old kernel, a sandbox, or a dead owner: the end of the pipe tells
        poll.register(os.pidfd_open(owner), select.POLLIN)
    if os.getppid() != owner:
        return False
    poll.poll()
    # `select` would refuse a descriptor from 1024 on. It has the number that it has in its owner.
    pipe = select.poll()
    pipe.register(control, select.POLLIN)
    return bool(pipe.poll(0)) and os.read(control, 1) == DONE


def _remove(name: str, search_path: Sequence[str]) -> None:
    """Removes the container and its volume, and retries for a while.

    The owner may have died just before the daemon created the container. A daemon that is down may come back with the
    container, or with its volume alone.
    """
    sys.path[:0] = search_path
    import docker

    def removed(remove: Callable[..., None], **options: bool) -> bool:
        """Returns False if there was nothing to remove."""
        try:
            remove(name, **options)
        except docker.errors.NotFound:
            return False
        return True

    container_removed, until = False, time.monotonic() + _OUTAGE_SECONDS
    while time.monotonic() < until:
        with suppress(Exception):  # Nobody is left to report to, and the daemon may come back.
            client = docker.APIClient(version="auto", **docker.utils.kwargs_from_env())
            container_removed |= removed(client.remove_container, v=True, force=True)
            removed(client.remove_volume)
            if container_removed:
                return
            until = min(until, time.monotonic() + _REMOVAL_SECONDS)
        time.sleep(_RETRY_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1:])
