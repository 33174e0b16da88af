"""Health checks of the places that we write to: the home folder, the warehouse, and the room on their disks."""

import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dagster_airbyte_proto.atomic_files import has_no_links
from dagster_airbyte_proto.diagnosis.health_check import Finding, HealthCheck, fails, ok, warning
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.object_stores.known import spark_settings
from dagster_airbyte_proto.loads.storage import Storage, is_local, without_file_scheme
from dagster_airbyte_proto.settings import Settings
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.tables.formats import find_format

_HOME, _WAREHOUSE, _DISK = "home folder", "warehouse", "disk"
_GIB = 1 << 30
# A load is 128 MiB, and is staged beside the one that is being committed; a compaction writes a table once more.
_ENOUGH_BYTES, _LEAST_BYTES = 5 * _GIB, _GIB // 2


def storage_checks(settings: Settings) -> Sequence[HealthCheck]:
    return [
        HealthCheck(_HOME, lambda: _home(settings), late="Name a folder on a local disk with --home."),
        HealthCheck(
            _WAREHOUSE,
            lambda: _warehouse(settings),
            seconds=60.0,
            late="Correct `catalog: {warehouse: …}` and its endpoint in the settings, or the network to it.",
        ),
        HealthCheck(_DISK, lambda: _disks(settings), late="Unmount the network disk that does not answer."),
    ]


def _home(settings: Settings) -> Sequence[Finding]:
    try:
        settings.make_home()
        with tempfile.TemporaryFile(dir=settings.home):
            pass
    except OSError as error:
        return [fails(_HOME, _said(settings.home, error), "Make it writable, or name another with --home.")]
    return [ok(_HOME, f"{settings.home} can be written")]


def warehouse_location(settings: Settings) -> str:
    """Returns the place of the warehouse; empty if the server of a catalog chooses that of each table."""
    config, key = _session_config(settings), f"spark.sql.catalog.{settings.catalog.name}"
    if config.get(f"{key}.type") == "rest":
        return ""
    return without_file_scheme(config.get(f"{key}.warehouse", settings.catalog.warehouse))


def _warehouse(settings: Settings) -> Sequence[Finding]:
    config, location = _session_config(settings), warehouse_location(settings)
    if not location:
        return [ok(_WAREHOUSE, f"catalog {settings.catalog.name} chooses the place of each table; nothing was written")]
    try:
        _write_and_delete(Storage(spark_settings(config, settings.catalog.name)), location)
    except (OSError, ValueError) as error:
        remedy = "Make it writable, or name another" if is_local(location) else "Correct its name and its credentials"
        return [fails(_WAREHOUSE, _said(location, error), f"{remedy} in the settings: `catalog: {{warehouse: …}}`.")]
    abilities = find_format(settings.catalog.format).abilities
    if not abilities.needs_hard_links:
        return [ok(_WAREHOUSE, f"{location}: a file was written, read and deleted")]
    try:
        _link_and_delete(Path(location))
    except OSError as error:
        if not has_no_links(error):
            return [fails(_WAREHOUSE, _said(location, error), "Look at its disk, or name another warehouse.")]
        found = (
            f"{location} is on a disk that makes no hard links ({error.strerror}), and tables of the format"
            f" {abilities.format} are committed by them"
        )
        remedy = (
            "Name a folder on a local disk that has them (ext4, XFS, APFS; not exFAT or FAT) in the settings:"
            " `catalog: {warehouse: …}`. Or take `format: iceberg`, which needs none."
        )
        return [fails(_WAREHOUSE, found, remedy)]
    return [ok(_WAREHOUSE, f"{location}: a file was written, read, linked and deleted")]


def _session_config(settings: Settings) -> Mapping[str, str]:
    try:
        parts = find_format(settings.catalog.format).spark_parts(Engine(settings).spark_settings)
    except ConfigError:  # Spark does not read these tables
        return settings.spark
    return {**parts.config, **settings.spark}


def _write_and_delete(storage: Storage, location: str) -> None:
    filesystem, folder = storage.at(location)
    if is_local(location):
        filesystem.create_dir(folder, recursive=True)
    path, content = f"{folder.rstrip('/')}/.doctor-{secrets.token_hex(8)}", secrets.token_bytes(64)
    with filesystem.open_output_stream(path) as written:
        written.write(content)
    try:
        with filesystem.open_input_stream(path) as read:
            if read.read() != content:
                raise OSError(f"{path} has other bytes than were written")
    finally:
        filesystem.delete_file(path)


def _link_and_delete(folder: Path) -> None:
    path = folder / f".doctor-{secrets.token_hex(8)}"
    link = path.with_name(f"{path.name}.link")
    try:
        path.touch()
        link.hardlink_to(path)
    finally:
        link.unlink(missing_ok=True)
        path.unlink(missing_ok=True)


def _disks(settings: Settings) -> Sequence[Finding]:
    findings = []
    for folders, free in _free_bytes(settings).items():
        text = f"{free / _GIB:.1f} GiB free for {folders}"
        if free < _LEAST_BYTES:
            findings.append(fails(_DISK, text, "Make room there."))
        elif free < _ENOUGH_BYTES:
            findings.append(warning(_DISK, text, "Make room there: loads, compactions and Spark's own files need it."))
        else:
            findings.append(ok(_DISK, text))
    return findings


def _free_bytes(settings: Settings) -> Mapping[str, int]:
    """The free bytes of each file system, by the names of what we keep there."""
    places = {"home": settings.home, "staging": settings.staging_folder, "temporary files": Path(tempfile.gettempdir())}
    if is_local(settings.catalog.warehouse):
        places["warehouse"] = Path(without_file_scheme(settings.catalog.warehouse)).absolute()
    names: dict[int, list[str]] = {}
    free: dict[int, int] = {}
    for name, place in places.items():
        folder = next(_existing(place))
        device = folder.stat().st_dev
        names.setdefault(device, []).append(name)
        free[device] = shutil.disk_usage(folder).free
    return {", ".join(names[device]): free[device] for device in names}


def _existing(place: Path) -> Iterator[Path]:
    return (folder for folder in (place, *place.parents) if folder.is_dir())


def _said(place: object, error: OSError | ValueError) -> str:
    return f"{place} cannot be written: {getattr(error, 'strerror', None) or error}"
