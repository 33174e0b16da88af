"""Objects of a driver, served to stubs as a task would have them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from dagster_airbyte_proto.sync.cluster.channel import Channel, RemoteObject
from dagster_airbyte_proto.sync.cluster.remote_calls import Access, DriverLink
from dagster_airbyte_proto.sync.cluster.values import RemoteMethods


class ServedObjects(NamedTuple):
    served: dict[str, RemoteObject]


class Serving:
    """A channel, and links to it that end with the test."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._links: list[DriverLink] = []

    def access(self, target: Any, *interfaces: type) -> Access:
        return self.channel.admit(ServedObjects({"it": RemoteObject(RemoteMethods(*interfaces), lambda _: target)}))

    def link(self, access: Access, attempt: int = 0) -> DriverLink:
        self._links.append(DriverLink(access, attempt))
        return self._links[-1]

    def stub(self, target: Any, *interfaces: type, **attributes: Any) -> Any:
        """The target, with these interfaces, over the channel."""
        return self.link(self.access(target, *interfaces)).stub("it", *interfaces, **attributes)

    def close(self) -> None:
        for link in self._links:
            link.close()


@pytest.fixture
def serving() -> Iterator[Serving]:
    with Channel("127.0.0.1", "127.0.0.1") as channel:
        opened = Serving(channel)
        yield opened
        opened.close()
