"""The list of the connector containers, as a daemon gives it in odd moments."""

from typing import Any, cast

import docker

from dagster_airbyte_proto.launchers.docker.containers import connector_containers, docker_labels


class _Daemon:
    def __init__(self, *containers: dict[str, Any]) -> None:
        self._containers = containers

    def volumes(self, **_: Any) -> dict[str, Any]:
        return {"Volumes": None}

    def containers(self, **_: Any) -> list[dict[str, Any]]:
        return [*self._containers]


def test_one_that_is_just_being_removed_has_no_name_and_is_left_out() -> None:
    named = {"Image": "source", "State": "running", "Created": 1, "Labels": docker_labels({}), "Names": ["/ours"]}
    daemon = _Daemon({**named, "Names": None}, named, {**named, "Names": []})
    assert [each.name for each in connector_containers(cast("docker.APIClient", daemon))] == ["ours"]
