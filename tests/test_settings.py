"""The settings file and the home folder."""

from pathlib import Path

import pytest

from dagster_airbyte_proto.checkpoints.sql.sql_store import SqlStore
from dagster_airbyte_proto.errors import ConfigError, StagingError
from dagster_airbyte_proto.settings import Settings, SettingsFile
from dagster_airbyte_proto.testing.folder import FOLDER_FORMAT
from tests.sync.read.test_failures import mounted

_TESTS_REMEDY = (
    "Tests can name a format by its import path, module:NAME. That of folder tables, which need no JVM, is "
    "dagster_airbyte_proto.testing.folder.format:FOLDER."
)


def load(folder: Path, text: str) -> Settings:
    file = folder / "airbyte-proto.yaml"
    file.write_text(text)
    return Settings.load(folder / "home", file)


def test_without_a_file_everything_lives_under_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings.load(Path("home"))
    home = tmp_path / "home"
    assert settings.state_url == f"sqlite:///{home}/state.db"
    assert settings.catalog.warehouse == str(home / "warehouse")
    assert (settings.catalog.name, settings.catalog.format, settings.lease_seconds) == ("lake", "iceberg", 60.0)
    folders = (settings.staging_folder, settings.catalogs_folder, settings.logs_folder, settings.environments_folder)
    assert list(folders) == [home / name for name in ("staging", "catalogs", "logs", "venvs")]
    assert settings.spark == {}


def test_a_file_may_be_named_by_a_text(tmp_path: Path) -> None:
    written = load(tmp_path, "lease_seconds: 7")
    assert Settings.load(tmp_path / "home", str(tmp_path / "airbyte-proto.yaml")) == written
    assert written.lease_seconds == 7


def test_a_file_of_comments_gives_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "# nothing yet\n") == Settings.load(tmp_path / "home")


@pytest.mark.parametrize(
    ("text", "is_secret"),
    [
        ("state_url: postgresql://user:secret@host/database", True),
        ("state_url: postgresql://user:pass/wo@rd@host/database", True),
        ("state_url: postgresql://host/database?user=u&password=secret", True),
        ("state_url: postgresql://user@host:5432/database", False),
        ("state_url: sqlite:///state.db", False),
        ("registry: https://user:secret@host/registry.json", True),
        ("spark: {spark.hadoop.fs.s3a.secret.key: secret}", True),
        ("spark: {spark.remote: 'sc://host/;token=secret'}", True),
        ("spark: {spark.master: 'local[4]'}", False),
    ],
)
def test_a_file_with_secrets_is_known_as_such(text: str, is_secret: bool, tmp_path: Path) -> None:
    assert load(tmp_path, text).secret_file == (tmp_path / "airbyte-proto.yaml" if is_secret else None)


def test_what_the_file_says_is_taken(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        """
state_url: postgresql://me:word@host/db
lease_seconds: 30
catalog: {name: prod, format: dagster_airbyte_proto.testing.folder.format:FOLDER, warehouse: ../rows}
spark: {spark.master: "local[2]", spark.ui.enabled: false, spark.sql.shuffle.partitions: 4}
""",
    )
    assert settings.state_url == "postgresql://me:word@host/db"
    assert settings.lease_seconds == 30.0
    assert (settings.catalog.name, settings.catalog.format) == ("prod", FOLDER_FORMAT)
    assert settings.catalog.warehouse == str(tmp_path / ".." / "rows")
    assert settings.spark == {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
    }


def test_a_state_file_lies_beside_the_settings_that_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep").mkdir()
    for folder in (tmp_path, tmp_path / "deep"):
        monkeypatch.chdir(folder)
        file = Path("airbyte-proto.yaml") if folder == tmp_path else Path("../airbyte-proto.yaml")
        (tmp_path / "airbyte-proto.yaml").write_text("state_url: sqlite:///states/state.db?timeout=5")
        named = Settings.load(tmp_path / "home", file).state_url.removeprefix("sqlite:///")
        assert Path(named.removesuffix("?timeout=5")).resolve() == tmp_path / "states" / "state.db"
    assert load(tmp_path, "state_url: sqlite:////var/state.db").state_url == "sqlite:////var/state.db"


def test_a_state_file_where_earlier_releases_made_it_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    old = tmp_path / "deep" / "state.db"
    old.touch()
    with pytest.raises(ConfigError, match=f"there is one at {old}: move it if"):
        load(tmp_path, "state_url: sqlite:///state.db")
    old.rename(tmp_path / "state.db")
    assert load(tmp_path, "state_url: sqlite:///state.db").state_url == f"sqlite:///{tmp_path}/state.db"


@pytest.mark.parametrize("text", ["", "state_url: sqlite:///home/state.db"])
def test_each_folder_has_a_store_of_its_own_whatever_its_name(tmp_path: Path, text: str) -> None:
    folders = [tmp_path / name for name in ("a?1", "a?2", "shop_feature%2Fprices", "büro #1")]
    for folder in folders:
        folder.mkdir()
        SqlStore(load(folder, text).state_url).connections()
    assert sorted(tmp_path.rglob("*.db")) == sorted(folder / "home" / "state.db" for folder in folders)
    misread = tmp_path / "shop_feature" / "prices" / "home" / "state.db"
    misread.parent.mkdir(parents=True)
    (folders[2] / "home" / "state.db").rename(misread)
    with pytest.raises(ConfigError, match=r"not there; .*shop_feature/prices/home/state\.db"):
        load(folders[2], text)


def test_a_file_that_is_no_store_keeps_no_folder_from_its_own(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("not a database")
    (folder := tmp_path / "notes?").mkdir()
    SqlStore(load(folder, "").state_url).connections()
    assert (folder / "home" / "state.db").is_file()


def test_a_store_at_a_path_that_was_read_letter_by_letter_is_not_passed_over(tmp_path: Path) -> None:
    database = tmp_path / "my%20state.db"
    SqlStore(f"sqlite:///{tmp_path}/my%2520state.db").connections()
    assert database.is_file()
    with pytest.raises(ConfigError, match="an earlier release put a store at") as refused:
        SqlStore(f"sqlite:///{tmp_path}/my%20state.db").connections()
    assert "%25" in refused.value.remedy


def test_a_warehouse_may_be_in_the_home_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert load(tmp_path, "catalog: {warehouse: ~/lake}").catalog.warehouse == "/home/ada/lake"


@pytest.mark.parametrize("warehouse", ["s3a://bucket/rows", "/data/rows"])
def test_a_warehouse_that_is_whole_is_left_as_it_is(tmp_path: Path, warehouse: str) -> None:
    assert load(tmp_path, f"catalog: {{warehouse: {warehouse!r}}}").catalog.warehouse == warehouse


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("lease_second: 3", 'line 1, lease_second: is not a known key; did you mean "lease_seconds"?'),
        (
            "home: x",
            f"line 1, home: is not a known key; known here: {', '.join(SettingsFile.model_fields)}",
        ),
        ("lease_seconds: 0", "line 1, lease_seconds: must be at least 1"),
        ("lease_seconds: 1.0e+12", "line 1, lease_seconds: must be at most 1e+09"),
        ("keep_history_days: 1000000", "line 1, keep_history_days: must be at most 365000"),
        (
            "catalog: {format: icebreg}",
            'line 1, catalog.format: must be one of iceberg, delta, parquet; did you mean "iceberg"?',
        ),
        (
            "catalog: {format: folder}",
            f"line 1, catalog.format: must be one of iceberg, delta, parquet\n{_TESTS_REMEDY}",
        ),
        (
            "catalog: {format: 'dagster_airbyte_proto.model:ORC'}",
            f"line 1, catalog.format: the module dagster_airbyte_proto.model has no ORC\n{_TESTS_REMEDY}",
        ),
        (
            "catalog: {name: my-lake}",
            'line 1, catalog.name: must be of letters, digits and "_", and not begin with a digit',
        ),
        ("spark: {spark.master: [x]}", 'line 1, spark["spark.master"]: must be text; found a list'),
        (
            "state_url: hunter2",
            'line 1, state_url: must be a URL such as "sqlite:///state.db" or "postgresql://host/database"',
        ),
    ],
)
def test_faults_are_told_as_in_a_connection_file(tmp_path: Path, text: str, found: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, text)
    assert str(error.value) == f"settings file {tmp_path / 'airbyte-proto.yaml'}: {found}"


def test_a_missing_settings_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        Settings.load(tmp_path, tmp_path / "none.yaml")


def test_a_format_has_a_catalog_and_a_place_of_its_own(tmp_path: Path) -> None:
    catalog = load(tmp_path, "catalog: {format: parquet}").catalog
    assert (catalog.name, catalog.warehouse) == ("spark_catalog", str(tmp_path / "home" / "warehouse"))
    for text, found in (
        ("catalog: {format: parquet, name: lake}", "name must be spark_catalog"),
        ("catalog: {format: parquet, warehouse: 's3://bucket/rows'}", "warehouse must be a local folder"),
        ("catalog: {format: delta, warehouse: 's3a://bucket/rows'}", "exclusive on a file system alone"),
    ):
        with pytest.raises(ConfigError, match=found):
            load(tmp_path, text)


def test_a_home_that_has_no_room_for_its_gitignore_is_not_there(tmp_path: Path) -> None:
    settings = Settings.load(tmp_path / "disk" / "home")
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=64k", "tmpfs") as disk:
        with (disk / "rest").open("wb") as rest, pytest.raises(OSError, match="No space left"):
            rest.write(bytes(1 << 17))
            rest.flush()
        with pytest.raises(StagingError, match="No space left") as full:
            settings.make_home()
        assert "Make room there" in full.value.remedy
        assert not settings.home.exists()
        (disk / "rest").unlink()
        settings.make_home()
        assert [(each.name, each.read_text()) for each in settings.home.iterdir()] == [(".gitignore", "*\n")]
