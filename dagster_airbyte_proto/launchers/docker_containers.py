"""The containers of connectors that a daemon has."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import docker

LABEL = "airbyte-proto"
"""What the labels of our containers, volumes and networks begin with."""

VERB = "verb"
"""The label that says what the connector was started for."""


class Container(NamedTuple):
    """`labels` are ours, by their names behind the prefix."""

    name: str
    image: str
    state: str
    created_at: datetime
    labels: Mapping[str, str]


def labelled(labels: Mapping[str, str]) -> dict[str, str]:
    """Our labels as the daemon has them."""
    return {LABEL: "connector"} | {f"{LABEL}.{key}": value for key, value in labels.items()}


def containers(daemon: docker.APIClient) -> list[Container]:
    """Those of connectors, whether they run or not; the oldest first."""
    found = daemon.containers(all=True, filters={"label": f"{LABEL}=connector"})
    return sorted(
        (
            Container(
                name=each["Names"][0].removeprefix("/"),
                image=each["Image"],
                state=each["State"],
                created_at=datetime.fromtimestamp(each["Created"], UTC),
                labels={key.removeprefix(f"{LABEL}."): value for key, value in each["Labels"].items()},
            )
            for each in found
        ),
        key=lambda each: each.created_at,
    )
