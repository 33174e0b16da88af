"""Connectors that are images, run by runs and steps that are in containers themselves."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.launcher import LaunchRunContext

from dagster_airbyte_proto.launchers.docker.containers import Container, connector_containers
from dagster_airbyte_proto.testing import fake_source
from tests.dagster_defs.support.container_steps import ORDER, shop_job
from tests.dagster_defs.support.shop_runs import Run
from tests.dagster_defs.support.step_process import opened
from tests.support.containers.images import Image, python_image
from tests.support.containers.machine_container import REPOSITORY, machine_image, machine_volumes
from tests.sync.shop import Shop, until
from tests.sync.test_sync import expect, two

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

_SECRET = "correct-horse-battery"


class Runs:
    """The shop, whose connector is an image, in runs or steps that are in containers and see this machine's files."""

    def __init__(self, place: Shop, connector: Image, own: Image) -> None:
        self.place, self._own, self._connector, self.daemon = place, own, connector, connector.daemon
        self._instance = place.folder / "dagster"
        place.more["connector"] = {
            "protocol": "airbyte",
            "launch": {"kind": "docker", "image": connector.name, "network": "none"},
        }

    def offer(self, scenario: Mapping[str, Any]) -> None:
        self.place.config["scenario"] = dict(scenario)
        self.place.offer(dict(scenario))

    def worker(self) -> subprocess.Popen[str]:
        """A run's, which has a container for each of its runs."""
        environment = {**os.environ, ORDER: self._order({**self._containers(), "retries": {"disabled": {}}})}
        environment["PATH"] = _path()
        command = [sys.executable, "-m", "tests.dagster_defs.support.container_steps", str(self._instance)]
        return subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True)

    @contextmanager
    def launched(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[dg.DagsterInstance, str]]:
        """A run that begins in a container, with its instance."""
        monkeypatch.setenv(ORDER, self._order(None))
        monkeypatch.setenv("PATH", _path())
        launcher = {"module": "dagster_docker", "class": "DockerRunLauncher", "config": self._containers()}
        overrides = {"run_launcher": launcher, "telemetry": {"enabled": False}}
        self._instance.mkdir(exist_ok=True)
        with dg.DagsterInstance.local_temp(str(self._instance), overrides=overrides) as instance:
            job = dg.reconstructable(shop_job)
            origin = job.get_python_origin()
            of_location = origin.repository_origin._replace(container_context={"env_vars": ["NO_PROXY=db"]})
            origin = origin._replace(repository_origin=of_location)
            run = instance.create_run_for_job(job.get_definition(), job_code_origin=origin)
            instance.run_launcher.launch_run(LaunchRunContext(dagster_run=run, workspace=None))
            yield instance, run.run_id

    def _order(self, executor: Mapping[str, Any] | None) -> str:
        return json.dumps(
            {"connection": str(self.place.connection_file), "home": str(self.place.home), "executor": executor}
        )

    def _containers(self) -> dict[str, Any]:
        volumes = machine_volumes(self.place.folder)
        return {
            "image": self._own.name,
            "networks": ["none"],
            "env_vars": ["PATH", ORDER, "HTTPS_PROXY=http://proxy:3128", f"SECRET={_SECRET}"],
            "container_kwargs": {"volumes": volumes, "working_dir": str(REPOSITORY), "auto_remove": True},
        }

    def run(self) -> Run:
        with self.worker() as worker:
            assert worker.stdout is not None
            run_id = worker.stdout.read().strip()
        with opened(self._instance) as instance:
            return Run(instance, run_id)

    def connectors(self) -> list[Container]:
        return [each for each in connector_containers(self.daemon) if each.image == self._connector.name]


def _path() -> str:
    return f"{Path(sys.executable).parent}:{os.environ['PATH']}"


@pytest.fixture
def runs(quick_folder: Path) -> Iterator[Runs]:
    program = ["-S", "/fake_source.py"]
    with (
        # An image of our own: other tests run at the same time, and ours count its containers.
        python_image({"/fake_source.py": Path(fake_source.__file__)}, program, ENV="OF=runs") as connector,
        machine_image() as own,
    ):
        yield Runs(Shop(quick_folder), connector, own)


def test_a_step_in_a_container_runs_a_connector_beside_it(runs: Runs) -> None:
    runs.offer(two(10, 20))
    run = runs.run()
    assert run.succeeded
    expect(runs.place, 10, 20)
    assert "@sha256:" in run.metadata("users")["airbyte_proto/connector"]
    assert runs.connectors() == []


@pytest.mark.nightly
def test_what_a_killed_step_left_goes_with_the_next_one(runs: Runs) -> None:
    runs.offer({**two(10, 20), "interleave": False, "failure": {"kind": "hang", "after": 22}})
    worker = runs.worker()
    until(lambda: len(runs.place.landed("orders")) > 0, "rows of a connector that hangs")
    [left] = runs.connectors()
    result = runs.daemon.inspect_container(left.name)
    worker.kill()
    worker.communicate()
    for each in runs.daemon.containers():
        if each["Names"][0].startswith("/dagster-step-"):
            runs.daemon.remove_container(each["Id"], force=True)
    assert result["HostConfig"]["NetworkMode"] == "none"
    assert "HTTPS_PROXY=http://proxy:3128" in result["Config"]["Env"]
    assert _SECRET not in json.dumps(result)
    assert result["HostConfig"]["Binds"] is None
    assert [each.name for each in runs.connectors()] == [left.name], "its guardian died with the step's container"
    runs.offer(two(10, 20))
    assert runs.run().succeeded
    assert runs.connectors() == []
    expect(runs.place, 10, 20)


@pytest.mark.nightly
def test_a_run_in_a_container_that_is_terminated_takes_its_connector_along(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.offer({**two(10, 20), "interleave": False, "failure": {"kind": "hang", "after": 22}})
    with runs.launched(monkeypatch) as (instance, run_id):
        until(lambda: len(runs.place.landed("orders")) > 0, "rows of a connector that hangs")
        [connector] = runs.connectors()
        environment = runs.daemon.inspect_container(connector.name)["Config"]["Env"]
        assert {"HTTPS_PROXY=http://proxy:3128", "NO_PROXY=db"} <= set(environment), "the launcher's, the location's"
        assert instance.run_launcher.terminate(run_id)
        assert runs.connectors() == []
        run = Run(instance, run_id)
    assert run.status is dg.DagsterRunStatus.CANCELED
    assert run.materialized == ["users"]
    assert runs.place.positions() == {"users": 10, "orders": 10}


@pytest.mark.nightly
def test_what_a_killed_runs_container_left_goes_with_the_next_run(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.offer({**two(10, 20), "interleave": False, "failure": {"kind": "hang", "after": 22}})
    with runs.launched(monkeypatch) as (instance, run_id):
        until(lambda: len(runs.place.landed("orders")) > 0, "rows of a connector that hangs")
        [left] = runs.connectors()
        run = instance.get_run_by_id(run_id)
        assert run is not None
        runs.daemon.kill(run.tags["docker/container_id"])
    assert [each.name for each in runs.connectors()] == [left.name], "its guardian died with the run's container"
    runs.offer(two(10, 20))
    with runs.launched(monkeypatch) as (instance, run_id):
        until(lambda: _is_finished(instance, run_id), "the end of a run in a container")
        assert Run(instance, run_id).succeeded
    assert runs.connectors() == []
    expect(runs.place, 10, 20)


def _is_finished(instance: dg.DagsterInstance, run_id: str) -> bool:
    run = instance.get_run_by_id(run_id)
    return run is not None and run.is_finished
