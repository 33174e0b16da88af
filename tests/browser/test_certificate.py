"""The page of a certificate, as a person reads it."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser, expect

from dagster_airbyte_proto.testing import fake_source
from tests.browser.dagster_ui import new_visitor

pytestmark = [pytest.mark.nightly, pytest.mark.browser]


def test_what_is_broken_is_open_and_the_rest_opens_on_a_click(chromium: Browser, tmp_path: Path) -> None:
    connection = {
        "connector": {"protocol": "airbyte", "launch": {"kind": "local", "command": fake_source.command()}},
        "config": {"scenario": {"streams": {"users": {"records": 25}}, "miscount": 1}, "count": 3},
    }
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(connection))
    command = [
        f"{Path(sys.executable).with_name('airbyte-proto')}",
        "--home",
        "home",
        "certify",
        "shop.yaml",
        "--html",
        "certificate.html",
    ]
    certified = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert certified.returncode == 1, certified.stdout + certified.stderr
    with new_visitor(chromium) as context:
        page = context.new_page()
        page.goto((tmp_path / "certificate.html").as_uri())
        broken = page.locator("details.broken", has_text="sourceStats.recordCount")
        expect(broken.locator("code").last).to_be_visible()
        held = page.locator("details.holds").first
        expect(held.locator("code").last).to_be_hidden()
        held.locator("summary").click()
        expect(held.locator("code").last).to_be_visible()
