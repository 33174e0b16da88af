"""Disks with little room and clocks that are wrong are found before a sync meets them."""

from pathlib import Path

import pytest
import yaml

from dagster_airbyte_proto.diagnosis.health_check import HealthCheck, Verdict, findings
from dagster_airbyte_proto.diagnosis.storage_health import storage_checks
from dagster_airbyte_proto.diagnosis.store_health import store_checks
from dagster_airbyte_proto.masking import Mask
from dagster_airbyte_proto.settings import Settings
from tests.support.postgres import PostgresServer
from tests.sync.read.test_failures import mounted


@pytest.mark.parametrize(("size", "verdict"), [("64m", Verdict.FAILS), ("1g", Verdict.WARNING), ("8g", Verdict.OK)])
def test_a_disk_with_little_room_is_named_with_what_lies_there(tmp_path: Path, size: str, verdict: Verdict) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", f"size={size}", "tmpfs") as disk:
        checks = [each for each in storage_checks(Settings.load(disk / "home")) if each.part == "disk"]
        [found] = [each for each in findings(checks, Mask(()), lambda _part: None) if "home" in each.found]
    assert (found.verdict, found.found.partition(" free for ")[2]) == (verdict, "home, staging, warehouse")
    assert found.remedy.startswith("Make room there") or verdict is Verdict.OK


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("seconds", "verdict", "words"),
    [(90, Verdict.WARNING, "s ahead of"), (-90, Verdict.WARNING, "s behind"), (2, Verdict.OK, "s ahead of")],
)
def test_a_clock_that_is_wrong_by_more_than_five_seconds_is_a_warning(
    postgres_server: PostgresServer, tmp_path: Path, seconds: int, verdict: Verdict, words: str
) -> None:
    schema = postgres_server.new_schema()
    postgres_server.ask(
        f"CREATE FUNCTION {schema}.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS"
        f" $$ SELECT pg_catalog.clock_timestamp() + interval '{seconds} s' $$"
    )
    # Functions of PostgreSQL's own are looked up last there, so its clock is ours.
    url = f"{postgres_server.url_of(schema)},pg_catalog"
    file = tmp_path / "settings.yaml"
    file.write_text(yaml.safe_dump({"state_url": url}))
    checks: list[HealthCheck] = [*store_checks(Settings.load(tmp_path / "home", file))]
    [clock] = [each for each in findings(checks, Mask(()), lambda _part: None) if each.part == "clock"]
    assert (clock.verdict, words in clock.found) == (verdict, True), clock
    assert ("NTP" in clock.remedy) == (verdict is Verdict.WARNING)
