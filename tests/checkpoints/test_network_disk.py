"""SQLite on a network file system: two machines would corrupt the state store."""

from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from dagster_airbyte_proto.checkpoints.network_disk import network_file_system
from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.errors import ConfigError


class _Mount(NamedTuple):
    mountpoint: str
    fstype: str


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/share/home/state.db", "nfs4"), ("/share/local/state.db", ""), ("/shared/state.db", ""), ("/state.db", "")],
)
def test_the_nearest_mount_decides(path: str, kind: str) -> None:
    mounts = [_Mount("/", "ext4"), _Mount("/share", "autofs"), _Mount("/share", "nfs4"), _Mount("/share/local", "xfs")]
    assert network_file_system(Path(path), mounts) == kind


@pytest.mark.parametrize("kind", ["cifs", "fuse.glusterfs", "fuse.ceph-fuse"])
def test_what_serves_files_of_other_machines_is_known(kind: str) -> None:
    assert network_file_system(Path("/share/state.db"), [_Mount("/share", kind)]) == kind


def test_of_an_unknown_place_nothing_is_said() -> None:
    assert network_file_system(Path("/anywhere"), []) == ""


def test_a_state_store_on_a_network_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: [_Mount("/", "ext4"), _Mount(str(tmp_path), "nfs4")])
    with pytest.raises(ConfigError) as raised:
        SqlStore(f"sqlite:///{tmp_path}/home/state.db").connections()
    assert "is on a network file system (nfs4)" in str(raised.value)
    assert "Put the home folder on a local disk" in str(raised.value)
    assert list(tmp_path.iterdir()) == []
