"""Containers: confined, told of in plain words when they cannot be, and gone whatever becomes of us."""

import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from dagster_airbyte_proto.errors import ConfigError, ConnectorError
from dagster_airbyte_proto.launchers.docker import images as docker_images
from dagster_airbyte_proto.launchers.docker.containers import Container, connector_containers
from dagster_airbyte_proto.launchers.docker.daemon import open_daemon
from dagster_airbyte_proto.launchers.docker.frames import FrameDecoder
from dagster_airbyte_proto.launchers.docker.launcher import Confinement, ContainerOwner, DockerLauncher
from dagster_airbyte_proto.launchers.docker.networks import ensure_link_local_network, ensure_own_network
from dagster_airbyte_proto.launchers.permissions import Permissions
from dagster_airbyte_proto.launchers.process import LaunchOptions
from dagster_airbyte_proto.sync.process_identity import is_dead, this_process
from tests.conformance.launcher import fill, read_all, report_of, start, start_with_input, until
from tests.launchers.conftest import FAKE_CONNECTOR, IMAGES
from tests.support.containers.images import Image, python_image
from tests.support.needs import lacks

pytestmark = pytest.mark.docker

_ALONE = Confinement(network="none")
_OWNER = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Dagster has it ignored in tests that a script began in the background.
from dagster_airbyte_proto.launchers.docker.launcher import Confinement, ContainerOwner, DockerLauncher
from dagster_airbyte_proto.launchers.docker.images import Image
from dagster_airbyte_proto.protocols.conversation import Invocation
from dagster_airbyte_proto.sync.process_identity import this_process
image, test = sys.argv[1:]
owner = ContainerOwner({"test": test, "owner": this_process()})
launcher = DockerLauncher(Image(image), Confinement(network="none"), owner=owner)
connector = launcher.launch(Invocation(("hang", "")), environment={})
assert connector.read(60)
print("reading", flush=True)
time.sleep(600)
"""


def confined(image: Image, confinement: Confinement = _ALONE) -> DockerLauncher:
    return DockerLauncher(image.launched(), confinement, owner=ContainerOwner({"test": image.test}))


def told(launcher: DockerLauncher) -> dict[str, str]:
    """What it may do."""
    return dict(line.split("=", 1) for line in read_all(start(launcher, "confinement")).decode().split())


def test_frames_are_read_wherever_they_are_cut() -> None:
    payloads = [b"", b"a", b"x" * 70_000, b"end\n"]
    sent = b"".join(b"\x01\0\0\0" + len(each).to_bytes(4) + each for each in payloads)
    for step in (1, 7, 8, 9, 4096, len(sent)):
        frames = FrameDecoder()
        chunks = [frames.feed(sent[at : at + step]) for at in range(0, len(sent), step)]
        assert b"".join(chunks) == b"".join(payloads)


def test_it_runs_as_nobody_with_nothing_but_its_folder_to_write_to(fake_image: Image) -> None:
    assert told(confined(fake_image)) == {
        "user": "65534:65534",
        "capabilities": "0000000000000000",
        "no_new_privileges": "1",
        "writable": "/config/run,/tmp",
        "networks": "lo",
        "folder": "/config/run",
    }


def test_what_confines_it_can_be_loosened(fake_image: Image) -> None:
    loose = Confinement(user="image", read_only=False, capabilities=("NET_RAW",))
    found = told(confined(fake_image, loose))
    assert (found["user"], found["writable"]) == ("0:0", "/config/run,/tmp,/")
    assert found["capabilities"] == "0000000000002000"
    assert found["networks"] != "lo"


@pytest.mark.parametrize(
    ("image", "variable", "leads_to"),
    [
        ("fake_image", "ITS_OWN", "/airbyte-proto.stdout"),
        ("fake_image", "its.own-name", "pipe:"),
        ("bare_image", "ITS_OWN", "pipe:"),
    ],
    indirect=["image"],
)
def test_what_it_says_goes_past_the_daemon_where_a_shell_can_send_it(
    image: Image, variable: str, leads_to: str
) -> None:
    """A shell may drop variables whose names it could not write, and some programs have such."""
    if apart := re.findall("name=(rootless|userns|selinux)", " ".join(image.daemon.info()["SecurityOptions"])):
        lacks("docker", f"containers of this daemon may not open what is ours: {', '.join(apart)}")
    options = LaunchOptions(permissions=Permissions((f"{variable}=kept",)))
    launcher = DockerLauncher(image.launched(), _ALONE, owner=ContainerOwner({"test": image.test}), options=options)
    stdout, *variables = read_all(start(launcher, "surroundings")).decode().split()
    assert stdout.startswith(leads_to)
    assert variable in variables


def test_those_that_need_our_network_first_at_once_all_run(fake_image: Image) -> None:
    with ThreadPoolExecutor(4) as pool:
        loose = [confined(fake_image, Confinement()) for _ in range(4)]
        assert all(found["networks"] != "lo" for found in pool.map(told, loose))


_DEFAULT, _LINK_LOCAL = "00000000", "0000FEA9"
"""Destinations of a route as Linux writes them: the bytes of an address, the last one first."""


def _routes(image: Image, network: str | None) -> dict[str, str]:
    """The network card that each destination is reached by."""
    connector = start(confined(image, Confinement(network=network)), "routes")
    table = read_all(connector).decode().splitlines()
    report_of(connector)
    return {destination: card for card, destination, *_ in map(str.split, table[1:])}


def test_what_it_sends_to_link_local_addresses_goes_nowhere(fake_image: Image) -> None:
    named = f"test-{fake_image.test}"
    fake_image.daemon.create_network(named)
    try:
        for network in (None, named):
            routes = _routes(fake_image, network)
            assert routes[_DEFAULT] != routes[_LINK_LOCAL]
    finally:
        fake_image.daemon.remove_network(named)
    assert _routes(fake_image, "none") == {}
    if Path("/var/run/docker.sock").exists():
        assert f"\t{_LINK_LOCAL}\t" not in Path("/proc/net/route").read_text(), "this machine reaches what it reached"


def test_those_that_need_the_link_local_network_first_at_once_get_the_same(fake_image: Image) -> None:
    with ThreadPoolExecutor(4) as pool:
        names = set(pool.map(lambda _: ensure_link_local_network(open_daemon().api), range(4)))
    assert len(names) == 1
    assert names != {None}


def test_connectors_that_share_a_network_of_ours_do_not_reach_each_other() -> None:
    api = open_daemon().api
    for network in (ensure_own_network(api), ensure_link_local_network(api)):
        assert network
        assert api.inspect_network(network)["Options"]["com.docker.network.bridge.enable_icc"] == "false"


def test_an_images_own_user_owns_its_files() -> None:
    with python_image({"/connector.py": FAKE_CONNECTOR}, ["-S", "/connector.py"], USER="airbyte") as image:
        assert told(confined(image))["user"] == "1000:1000"
        assert read_all(start(confined(image), "folder", config=b"secret")).endswith(b"0o700\n0o600\nsecret")


def test_one_that_takes_too_much_memory_is_told_so(fake_image: Image) -> None:
    connector = start(confined(fake_image, Confinement(network="none", memory="64m")), "eat_memory")
    assert read_all(connector) == b""
    report = report_of(connector)
    assert report.signal == signal.SIGKILL
    told = (
        r"was ended by signal 9: (perhaps )?it took more memory than 64m "
        r"\(`memory` in its launch; raise that, or have it read less at once\)"
    )
    assert re.fullmatch(told, report.how_it_ended)
    assert fake_image.leftovers() == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_us(fake_image: Image, number: int) -> None:
    command = [sys.executable, "-c", _OWNER, fake_image.name, fake_image.test]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"reading\n"
        assert len(fake_image.leftovers()) == 2
        os.kill(owner.pid, number)
        owner.wait()
    until(lambda: fake_image.leftovers() == [], "the end of its container and volume")


@pytest.mark.everyday("True")
@pytest.mark.parametrize("is_volume_alone", [False, True])
def test_what_outlived_us_and_its_guardian_goes_when_the_next_one_starts(
    fake_image: Image, is_volume_alone: bool
) -> None:
    command = [sys.executable, "-c", _OWNER, fake_image.name, fake_image.test]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"reading\n"
        for process in [*psutil.Process(owner.pid).children(), psutil.Process(owner.pid)]:
            process.kill()
    container, volume = fake_image.leftovers()
    if is_volume_alone:
        fake_image.daemon.remove_container(container, v=True, force=True)
        assert [
            (each.image, each.state) for each in connector_containers(fake_image.daemon) if each.name == volume
        ] == [("", "files only")]
    labels = {"test": f"{fake_image.test}-alive", "owner": this_process()}

    def is_ours_and_dead(found: Container) -> bool:
        return found.labels.get("test", "").startswith(fake_image.test) and is_dead(found.labels["owner"])

    alive = DockerLauncher(fake_image.launched(), _ALONE, owner=ContainerOwner(labels, is_ours_and_dead))
    connector = start(alive, "hang")
    assert fake_image.leftovers() == []
    assert read_all(start(alive, "environment")) == b""
    assert connector.wait(0) is None, "the container of one who lives stays"
    connector.stop()


def test_a_folder_in_the_place_of_its_config_is_not_read(fake_image: Image) -> None:
    script = f"""
import resource
from tests.conformance.launcher import report_of, start
from dagster_airbyte_proto.launchers.docker.images import Image
from dagster_airbyte_proto.launchers.docker.launcher import Confinement, ContainerOwner, DockerLauncher
image, alone = Image({fake_image.name!r}), Confinement(network="none")
launcher = DockerLauncher(image, alone, owner=ContainerOwner({{"test": {fake_image.test!r}}}))
report_of(start(launcher, "link"))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
connector = start(launcher, "large_folder")
print(report_of(connector).code, connector.rewritten_file())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    told, kilobytes = ended.stdout.splitlines()
    assert told == "0 None"
    assert int(kilobytes) < 50_000


def test_one_that_somebody_kills_has_ended_so(fake_image: Image) -> None:
    connector = start(confined(fake_image), "hang")
    assert connector.read(60)
    fake_image.daemon.kill(fake_image.leftovers()[0])
    assert read_all(connector) == b""
    limit = "2g (`memory` in its launch; raise that, or have it read less at once)"
    assert report_of(connector).how_it_ended == f"was ended by signal 9: perhaps it took more memory than {limit}"
    assert fake_image.leftovers() == []


def test_one_that_closed_its_stdin_takes_nothing_more_and_can_be_stopped(fake_image: Image) -> None:
    """Its init holds the other end, so that a write meets no error."""
    connector = start_with_input(confined(fake_image), "close_stdin")
    assert connector.read(60)
    assert fill(connector) <= 4 << 20
    assert connector.write(b"x", 0) == 0
    connector.stop()
    assert report_of(connector).stopped
    assert fake_image.leftovers() == []


def test_an_image_that_is_not_there_is_told_by_name(fake_image: Image) -> None:
    name = f"{fake_image.name}-none"
    launcher = DockerLauncher(docker_images.Image(name, pull="never"))
    with pytest.raises(ConfigError, match=f"there is no image {name}"):
        launcher.identity()


def test_a_registry_that_does_not_answer_is_told_with_the_way_out(fake_image: Image) -> None:
    name = "127.0.0.1:9/acme/source:1"  # Nobody listens there.
    with pytest.raises(ConnectorError, match="is not here, and its registry does not answer") as caught:
        DockerLauncher(docker_images.Image(name)).identity()
    assert caught.value.retryable
    assert "docker load" in str(caught.value)


@pytest.mark.parametrize(
    ("strange", "told"),
    [
        (_ALONE._replace(network="no-such"), "network no-such not found"),
        (_ALONE._replace(user="no-such"), "unable to find user no-such"),
        (_ALONE._replace(memory="1m"), "Minimum memory limit"),
        (_ALONE._replace(capabilities=("NO_SUCH",)), "unknown capability"),
        (_ALONE._replace(volumes=("/a:/b:c:d",)), "invalid volume specification"),
    ],
)
def test_what_a_launch_asks_for_in_vain_is_the_users_to_correct(
    fake_image: Image, strange: Confinement, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        start(confined(fake_image, strange), "lines")
    assert fake_image.leftovers() == []


def test_an_image_for_another_kind_of_machine_is_told_so(fake_image: Image) -> None:
    image = fake_image.launched()._replace(platform="linux/s390x")
    launcher = DockerLauncher(image, _ALONE, owner=ContainerOwner({"test": fake_image.test}))
    with pytest.raises(ConfigError, match=r"made for another kind of machine: .*actual: linux/") as refused:
        start(launcher, "lines")
    assert "pull: always" in refused.value.remedy


def test_an_image_that_was_built_for_another_kind_of_machine_is_told_so(fake_image: Image, tmp_path: Path) -> None:
    (tmp_path / "run").write_bytes(b"\x7fELF of another kind")
    (tmp_path / "run").chmod(0o755)
    (tmp_path / "Dockerfile").write_text('FROM scratch\nCOPY run /run\nENTRYPOINT ["/run"]\n')
    image = fake_image._replace(name=f"airbyte-proto-test:{fake_image.test}")
    told = image.daemon.build(path=str(tmp_path), tag=image.name, platform="linux/s390x", rm=True, decode=True)
    assert [each for each in told if "error" in each] == []
    connector = start(confined(image), "lines")
    assert read_all(connector) == b""
    with pytest.raises(ConfigError, match="made for another kind of machine: exec format error, as it is for s390x"):
        report_of(connector)
    image.daemon.remove_image(image.name)


@pytest.mark.everyday("bare_image")
@pytest.mark.parametrize("image", IMAGES, indirect=True)
def test_a_program_that_the_image_has_not_is_told_with_the_way_out(image: Image) -> None:
    launcher = DockerLauncher(image.launched("/no/such"), Confinement(network="none"))
    connector = start(launcher, "lines")
    assert read_all(connector) == b""
    with pytest.raises(ConfigError, match=r"does not have the program to run: exec .*failed.*o such file") as refused:
        report_of(connector)
    assert "/no/such" in refused.value.found
    assert refused.value.remedy == "Set command to a program of the image that speaks the protocol."


@pytest.mark.everyday("fake_image")
@pytest.mark.parametrize("image", IMAGES, indirect=True)
def test_a_program_that_its_user_may_not_run_is_told_with_the_way_out(image: Image) -> None:
    launcher = DockerLauncher(image.launched("/connector.py"), _ALONE, owner=ContainerOwner({"test": image.test}))
    connector = start(launcher, "lines")
    assert read_all(connector) == b""
    with pytest.raises(ConfigError, match=r"the user may not run the program of image .*Permission denied") as refused:
        report_of(connector)
    assert refused.value.remedy.startswith("Set user to one who may")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("[FATAL tini (7)] denied: hunter22", 127),
        ("[FATAL tini (7)] exec hunter22 failed: x", 126),
        ("airbyte-proto: hunter22", 126),
    ],
)
def test_a_connector_that_writes_as_the_init_does_has_no_word_in_an_error(
    fake_image: Image, line: str, code: int
) -> None:
    """No mask is known there: its last words, which may have a secret in them, are the report's."""
    command = ("/bin/sh", "-c", f"echo '{line}' >&2; exit {code}")
    owner = ContainerOwner({"test": fake_image.test})
    connector = start(DockerLauncher(fake_image.launched(*command), _ALONE, owner=owner), "lines")
    assert read_all(connector) == b""
    try:
        assert report_of(connector).stderr_tail == (line,)
    except ConfigError as error:
        assert "exec /bin/sh failed: Permission denied" in error.found
        assert "hunter22" not in str(error)


def test_no_daemon_is_told_with_the_way_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(ConfigError, match=r"connecting to Docker: .*No such file or directory") as refused:
        open_daemon()
    assert "DOCKER_HOST" in refused.value.remedy
