"""Images from a registry that wants a password, and what a deployment says of its containers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.docker.containers import LABEL
from dagster_airbyte_proto.launchers.docker.deployment import Deployment, ImageRegistry
from dagster_airbyte_proto.launchers.docker.images import Image, PullProgress, image_identity
from dagster_airbyte_proto.launchers.docker.launcher import Confinement, ContainerOwner, DockerLauncher
from dagster_airbyte_proto.launchers.permissions import Permissions
from dagster_airbyte_proto.launchers.process import LaunchOptions
from tests.conformance.launcher import read_all, report_of, start
from tests.support.containers import images
from tests.support.containers.registry import open_registry

pytestmark = pytest.mark.docker

_ALONE = Confinement(network="none")


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[ImageRegistry]:
    with open_registry(tmp_path) as opened:
        yield opened


@pytest.fixture
def published(registry: ImageRegistry, fake_image: images.Image) -> str:
    """The fake image's name in the registry; it is nowhere else under that name."""
    daemon, name = fake_image.daemon, f"{registry.url}/fake:1"
    daemon.tag(fake_image.name, name)
    login = {"username": registry.username, "password": registry.password}
    errors = [
        each["error"] for each in daemon.push(name, stream=True, decode=True, auth_config=login) if "error" in each
    ]
    assert errors == []
    daemon.remove_image(name)
    return name


def test_an_image_is_pulled_as_the_deployment_says_and_known_by_its_digest(
    registry: ImageRegistry, published: str, fake_image: images.Image
) -> None:
    notices: list[str] = []
    deployment = Deployment(registry)
    launcher = DockerLauncher(
        Image(published), _ALONE, deployment=deployment, options=LaunchOptions(on_notice=notices.append)
    )
    name, _, digest = launcher.identity().partition("@")
    assert (name, digest[:7], len(digest)) == (published, "sha256:", 71)
    assert notices[0] == f"pulling image {published}"
    assert notices[-1].startswith(f"pulled image {published} in ")
    fake_image.daemon.remove_image(published)
    pinned = DockerLauncher(Image(f"{registry.url}/fake@{digest}"), _ALONE, deployment=deployment)
    assert pinned.identity() == f"{registry.url}/fake@{digest}"
    connector = start(pinned, "lines")
    assert read_all(connector)
    assert report_of(connector).ended_cleanly
    fake_image.daemon.remove_image(f"{registry.url}/fake@{digest}")


def test_how_far_a_pull_is_is_told_in_megabytes_and_layers() -> None:
    layers = PullProgress()
    assert layers.summary() == "0 of 0 MB, 0 layers done"
    for layer, status, detail in (
        ("a", "Pulling fs layer", {}),
        ("b", "Already exists", {}),
        ("a", "Downloading", {"current": 20_000_000, "total": 50_000_000}),
        ("c", "Downloading", {"current": 1_000_000, "total": 4_000_000}),
        ("c", "Download complete", {}),
        ("c", "Pull complete", {}),
    ):
        layers.update({"id": layer, "status": status, "progressDetail": detail})
    assert layers.summary() == "24 of 54 MB, 2 layers done"


def test_of_the_digests_of_several_registries_the_one_that_the_image_is_named_after_is_told() -> None:
    found = {"Id": "sha256:0", "RepoDigests": ["elsewhere:5000/fake@sha256:1", "here:5000/fake@sha256:2"]}
    assert image_identity(Image("here:5000/fake:latest", ("run",)), found) == "here:5000/fake:latest@sha256:2 run"
    assert image_identity(Image("fake"), found) == "fake@sha256:1"
    assert image_identity(Image("fake"), {"Id": "sha256:0"}) == "fake@sha256:0"


def test_a_registry_that_does_not_know_us_is_told_and_so_is_one_that_was_given_none(
    registry: ImageRegistry, published: str
) -> None:
    stranger = DockerLauncher(Image(published), deployment=Deployment(registry._replace(password="wrong")))
    with pytest.raises(
        ConfigError, match=f"logging in to the registry of images: {registry.url} refuses us"
    ) as refused:
        stranger.identity()
    assert "wrong" not in str(refused.value)
    with pytest.raises(
        ConfigError, match=f"image {published} cannot be pulled: .*no basic auth credentials"
    ) as refused:
        DockerLauncher(Image(published)).identity()
    assert "docker login" in refused.value.remedy


def test_a_connector_gets_of_its_deployment_how_the_world_is_reached_and_no_secret(fake_image: images.Image) -> None:
    daemon, test = fake_image.daemon, fake_image.test
    deployment = Deployment(
        environment={"HTTPS_PROXY": "http://proxy:3128", "no_proxy": "db", "DAGSTER_POSTGRES_PASSWORD": "hunter22"},
        kwargs={"extra_hosts": {"shop.test": "10.1.2.3"}, "privileged": True, "volumes": ["/:/host"]},
    )
    own, options = Confinement(kwargs={"hostname": "reader"}), LaunchOptions(Permissions(("no_proxy=shop",)))
    owner = ContainerOwner({"test": test})
    launcher = DockerLauncher(fake_image.launched(), own, deployment=deployment, owner=owner, options=options)
    connector = start(launcher, "hang")
    found = daemon.inspect_container(fake_image.leftovers()[0])
    connector.stop()
    ours = {each["Name"] for each in daemon.networks(filters={"label": LABEL})}
    assert set(found["NetworkSettings"]["Networks"]) <= ours
    environment = {key: value for key, _, value in (each.partition("=") for each in found["Config"]["Env"])}
    assert (environment["HTTPS_PROXY"], environment["no_proxy"]) == ("http://proxy:3128", "shop")
    assert "DAGSTER_POSTGRES_PASSWORD" not in environment
    assert found["Config"]["Hostname"] == "reader"
    host = found["HostConfig"]
    assert (host["ExtraHosts"], host["Privileged"], host["Binds"]) == (["shop.test:10.1.2.3"], False, None)
    assert (host["SecurityOpt"], host["CapDrop"]) == (["no-new-privileges"], ["ALL"])


def test_what_dockers_client_does_not_take_is_told(fake_image: images.Image) -> None:
    strange = _ALONE._replace(kwargs={"shm_sice": "1g"})
    with pytest.raises(
        ConfigError, match=r"container_kwargs has an argument that Docker's client does not take: .*shm_sice"
    ):
        start(DockerLauncher(fake_image.launched(), strange, owner=ContainerOwner({"test": fake_image.test})), "lines")
    assert fake_image.leftovers() == []
