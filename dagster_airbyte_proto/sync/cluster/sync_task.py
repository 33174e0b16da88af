"""The task of one sync, on an executor: fetches its order from the driver, and runs it as the driver would.

The task needs the same version of this package as the driver, and whatever programs its connector needs. What it
installs, logs and fetches from the driver lies in a home folder of the executor's machine:
`AIRBYTE_PROTO_EXECUTOR_HOME` there, or one in the user's cache.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Protocol, cast
from uuid import uuid4

from dagster_airbyte_proto.checkpoints.deliveries import DeliveryStore
from dagster_airbyte_proto.connection import Connection
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.loads.storage import Storage, is_local
from dagster_airbyte_proto.loads.table import TableSpec, TableTarget
from dagster_airbyte_proto.loads.vended import CredentialSource
from dagster_airbyte_proto.project_folder import expanded
from dagster_airbyte_proto.sync.cluster.connector_files import CachedFiles, FilesOfDriver
from dagster_airbyte_proto.sync.cluster.credentials import DriverCredentials
from dagster_airbyte_proto.sync.cluster.progress_sender import ProgressSender
from dagster_airbyte_proto.sync.cluster.remote_calls import Access, DriverLink, package_version
from dagster_airbyte_proto.sync.cluster.sync_order import SyncDriver, SyncOrder, SyncOutcome, TablesOfDriver
from dagster_airbyte_proto.sync.cluster.values import as_remote
from dagster_airbyte_proto.sync.commit_listener import CommittedStream
from dagster_airbyte_proto.sync.connector.answer_cache import AnswerCache
from dagster_airbyte_proto.sync.connector.launcher_choice import ConnectorOptions
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.sync.leased_sync import FinishedSync, SyncOptions, sync_leased
from dagster_airbyte_proto.sync.run_log import RunLog
from dagster_airbyte_proto.sync.run_options import RunOptions
from dagster_airbyte_proto.sync.telemetry.run_telemetry import NO_TELEMETRY
from dagster_airbyte_proto.tables.writer import SupportsBranches, SupportsKeyLookup, TableWriter

_HOME_VARIABLE = "AIRBYTE_PROTO_EXECUTOR_HOME"
_POLL_SECONDS = 0.5
_CACHE = "~/.cache/dagster_airbyte_proto/executor"


def run_sync_task(accesses: Sequence[Access], number: int, attempt: int) -> None:
    """Runs the sync of this number. Attempts count from 0; a later one supersedes those before it."""
    link = DriverLink(accesses[number], attempt)
    try:
        driver: SyncDriver = link.stub("driver", SyncDriver)
        mismatch = version_mismatch(accesses[number].version)
        if mismatch is not None:
            _decline(driver, attempt, SyncOutcome(error=as_remote(mismatch)))
            return
        order = driver.order(attempt)
        if order is not None:
            driver.ended(attempt, _outcome(link, driver, order, attempt))
            _wait_for_later_attempt(driver, attempt)
    finally:
        link.close()


def _decline(driver: SyncDriver, attempt: int, outcome: SyncOutcome) -> None:
    """Returns once no other attempt is at work, as Spark would kill that one. Nor is it an error of the task: of a few
    Spark ends the job, and the syncs beside this one, and it soon has them where it speculates on the same worker."""
    while not driver.declined(attempt, outcome):
        time.sleep(_POLL_SECONDS)


def _wait_for_later_attempt(driver: SyncDriver, attempt: int) -> None:
    """Returns once no later attempt is at work: Spark takes the first attempt that returns for the task, and kills the
    others. Raises ConnectorError for one that has died, so that Spark tries again."""
    while driver.is_superseded(attempt):
        time.sleep(_POLL_SECONDS)


class FileCheck(Protocol):
    """The driver, which says whether it has a file."""

    def sees(self, path: str) -> bool: ...


def version_mismatch(of_driver: str) -> ConfigError | None:
    """The error where this package is another one than at the driver: what they say to each other differs."""
    here = package_version()
    if here and of_driver and here != of_driver:
        return ConfigError(
            "running a sync on an executor",
            f"dagster-airbyte-proto is {here} on the executor, and {of_driver} on the driver",
            remedy="Install the same version on both.",
        )
    return None


def _outcome(link: DriverLink, driver: SyncDriver, order: SyncOrder, attempt: int) -> SyncOutcome:
    try:
        with _environment_with(order.variables):
            finished = _sync(link, driver, order, attempt)
        return SyncOutcome(finished.report, finished.due)
    except Exception as error:  # noqa: BLE001 - the driver gets and raises it; Spark would try a bug four times
        return SyncOutcome(error=as_remote(error))


def _sync(link: DriverLink, driver: SyncDriver, order: SyncOrder, attempt: int) -> FinishedSync:
    home = executor_home()
    files = CachedFiles(home, order.files, link.stub("files", FilesOfDriver))
    connection = Connection.from_another_process(order.connection, files.read)
    settings = order.settings.at(home)
    cancel = threading.Event()
    with (
        ProgressSender(driver, cancel) as sender,
        RunLog(settings.logs_folder / connection.name, order.run_id, on_line=sender.connector_logged) as log,
        Engine(
            settings,
            store=link.stub("store", DeliveryStore),
            tables=_tables(link, driver, order.tables),
            connector_options=ConnectorOptions(
                hidden_files=_files_here(order.hidden_files), answer_cache=link.stub("answers", AnswerCache)
            ),
        ) as engine,
    ):
        options = RunOptions(
            cancel,
            sender,
            order.timeouts,
            commit_listener=_CommitsOfAttempt(driver, attempt),
            run_id=order.run_id,
            lease_wait_seconds=order.lease_wait_seconds,
            attempt=order.attempt + attempt,
        )
        return sync_leased(engine, connection, order.request, SyncOptions(options, log, NO_TELEMETRY))


def _files_here(paths: Iterable[str]) -> tuple[Path, ...]:
    """Those of the driver's files that this machine has too: then it is the driver's own, most likely."""
    return tuple(path for path in map(Path, paths) if path.exists())


class _CommitsOfAttempt(NamedTuple):
    """A CommitListener that passes the streams on to the driver, as those of this attempt."""

    driver: SyncDriver
    attempt: int

    def committed(self, streams: Sequence[CommittedStream]) -> None:
        self.driver.committed(self.attempt, streams)


def _tables(link: DriverLink, driver: SyncDriver, tables: TablesOfDriver) -> TableWriter:
    interfaces = [TableWriter]
    if tables.has_key_lookup:
        interfaces.append(cast(type[TableWriter], SupportsKeyLookup))
    if tables.has_branches:
        interfaces.append(cast(type[TableWriter], SupportsBranches))
    storage = tables.storage
    if tables.vends_credentials:
        storage = Storage(storage.settings, DriverCredentials(link.stub("credentials", CredentialSource)))
    stub: TableWriter = link.stub(
        "tables", *interfaces, abilities=tables.abilities, storage=storage, close=lambda _: None
    )
    stub.prepare = _prepare_shared(stub.prepare, storage, driver)  # type: ignore[method-assign]  # of one object's class
    return stub


def _prepare_shared(
    prepare: Callable[[TableSpec], TableTarget], storage: Storage, driver: SyncDriver
) -> Callable[..., TableTarget]:
    """Prepares tables as the driver does, with the storage of the task, and sees to it that both have the same folder
    before rows are staged."""
    is_checked = threading.Event()

    def prepare_shared(spec: TableSpec) -> TableTarget:
        target = prepare(spec)._replace(storage=storage)
        if is_local(target.location) and not is_checked.is_set():
            check_shared(Path(target.location), f"staging rows of table {target.name} on an executor", driver)
            is_checked.set()
        return target

    return prepare_shared


def check_shared(folder: Path, doing: str, driver: FileCheck) -> None:
    """Raises ConfigError where a folder cannot be written here, or is another one on the driver."""
    probe = folder / f".airbyte-proto-{uuid4().hex}"
    remedy = "Put the warehouse on storage that the driver and all executors share, or set run_on: driver."
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        is_shared = driver.sees(str(probe))
    except OSError as error:
        raise ConfigError(doing, f"{folder} cannot be written there: {error.strerror}", remedy=remedy) from error
    finally:
        with suppress(OSError):
            probe.unlink()
    if not is_shared:
        raise ConfigError(doing, f"{folder} is another folder there than on the driver", remedy=remedy)


@contextmanager
def _environment_with(variables: Mapping[str, str]) -> Iterator[None]:
    """Adds variables to the environment of this process, which runs one task at a time."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def executor_home() -> Path:
    """Returns the home folder of this machine, which is made if need be. Raises ConfigError."""
    named = os.environ.get(_HOME_VARIABLE)
    home = expanded(named or _CACHE)
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(
            "running a sync on an executor",
            f"its home folder {home} cannot be created: {error.strerror}",
            remedy=f"Name a folder of its own for each executor with spark.executorEnv.{_HOME_VARIABLE}.",
        ) from error
    return home
