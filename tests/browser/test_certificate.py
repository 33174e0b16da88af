"""The page of a certificate, as a person reads it: of a real source that loses rows when a sync is interrupted."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser, expect

from tests.browser.dagster_ui import new_visitor
from tests.test_example import home_with_connectors

pytestmark = [pytest.mark.nightly, pytest.mark.browser, pytest.mark.connectors, pytest.mark.timeout(900)]

_CONNECTION = {
    "connector": {"protocol": "airbyte", "launch": {"kind": "pypi", "package": "airbyte-source-faker==7.2.1"}},
    "config": {"count": 2000, "seed": 1, "records_per_slice": 100, "parallelism": 1},
}
# The picture has the two sections that the documentation speaks of.
_HIDE_OTHERS = """() => [...document.querySelectorAll("section:has(h2)")]
    .filter(each => !/States|Runs/.test(each.querySelector("h2").textContent)).forEach(each => each.remove())"""


def test_what_is_broken_is_open_and_the_rest_opens_on_a_click(
    chromium: Browser, tmp_path: Path, connector_environments: Path, pictures: Path
) -> None:
    (tmp_path / "faker.yaml").write_text(yaml.safe_dump(_CONNECTION))
    home = home_with_connectors(tmp_path / "home", connector_environments)
    program = Path(sys.executable).with_name("airbyte-proto")
    certified = subprocess.run(
        [program, "--home", home, "certify", "faker.yaml", "--html", "certificate.html"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert certified.returncode == 1, certified.stdout + certified.stderr
    with new_visitor(chromium) as context:
        page = context.new_page()
        page.set_viewport_size({"width": 1000, "height": 1300})
        page.goto((tmp_path / "certificate.html").as_uri())
        # How many rows are lost, or come again, depends on the second in which it began.
        broken = page.locator("details.broken#state_resumes")
        expect(broken).to_contain_text("1,900 records were covered by the state")
        expect(broken.locator("blockquote")).to_be_visible()
        held = page.locator("details:not([open])").first
        expect(held.locator("code").last).to_be_hidden()
        held.locator("summary").click()
        expect(held.locator("code").last).to_be_visible()
        held.locator("summary").click()
        page.evaluate(_HIDE_OTHERS)
        page.screenshot(path=pictures / "certificate.png")
