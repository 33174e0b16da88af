"""One Dagster on a copy of the example project and one Chromium for all browser tests; a new visitor for each.

Both end with the last of them: Dagster's daemon would go on ticking, and Playwright keeps an event loop running.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.dagster_server import DagsterServer, Target, running_dagster
from tests.browser.dagster_ui import CHROMIUM, DagsterUI, new_visitor, start_chromium
from tests.browser.projects import Project, copied_project
from tests.support.needs import lacks

_ROOT = Path(__file__).parent.parent.parent
_FAILURES = _ROOT / "build" / "pictures"
# Nobody listens there: what asks the network, and follows these, fails.
_NO_NETWORK = {
    "http_proxy": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
    "no_proxy": "127.0.0.1,localhost",
}


@pytest.fixture(scope="session")
def pictures() -> Path:
    """The folder for pictures: AIRBYTE_PROTO_PICTURES, or build/pictures."""
    folder = Path(os.environ.get("AIRBYTE_PROTO_PICTURES", _FAILURES))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="package")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return copied_project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory, project: Project) -> Iterator[DagsterServer]:
    environment = {**_NO_NETWORK, "AIRBYTE_PROTO_HOME": f"{project.home}"}
    target = Target(["-w", project.workspace.name], project.workspace.parent)
    with running_dagster(target, tmp_path_factory.mktemp("dagster"), environment) as started:
        yield started


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        lacks("chromium", f"there is no {CHROMIUM} (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = start_chromium(playwright)
        yield browser
        browser.close()


@pytest.fixture
def ui(chromium: Browser, server: DagsterServer, pictures: Path, request: pytest.FixtureRequest) -> Iterator[DagsterUI]:
    """A page without the first-run dialog. What it showed when a test failed is in build/pictures."""
    server.put_first_run_dialog_away()
    with new_visitor(chromium) as context:
        asked: set[str | None] = set()
        context.on("request", lambda request: asked.add(urlsplit(request.url).hostname))
        page = context.new_page()
        failed_before = request.session.testsfailed
        yield DagsterUI(page, server, pictures)
        if request.session.testsfailed > failed_before:
            page.screenshot(path=_FAILURES / f"failed-{request.node.name}.png")
        assert asked <= {"127.0.0.1", None}, "the UI called out"
