"""A person at the Dagster UI: what they press, what they see. Written against Dagster 1.13.

Elements are found by role and text. The accessible name of a button begins with the name of its icon
("materialization Materialize"), hence the patterns that look at a name's end only.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Browser, BrowserContext, Locator, Page, Playwright, Response, ViewportSize, expect

from tests.browser.dagster_server import DagsterServer, until

CHROMIUM = Path("/usr/bin/chromium")
# As root Chromium needs --no-sandbox. The resolver rule keeps the UI, and Chromium itself, from calling out.
_CHROMIUM_ARGUMENTS = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
_SEEN_WITHIN_MILLISECONDS = 60_000
expect.set_options(timeout=_SEEN_WITHIN_MILLISECONDS)
_MOST_ZOOM_STEPS = 12
_GROUP_HEAD_PIXELS = 70
# Below 60 % the nodes of a graph are drawn without their contents.
_LARGE_WINDOW: ViewportSize = {"width": 1440, "height": 1560}
WINDOW: ViewportSize = {"width": 1440, "height": 900}
# Two looks at a canvas that agree are this far apart: more than a frame of an animation.
_CANVAS_IS_STILL = """async canvas => {
    const look = () => canvas.toDataURL();
    const before = look();
    await new Promise(done => setTimeout(done, 100));
    return canvas.width > 0 && before === look();
}"""
# The bar of a step is white until the chart has heard of its end.
_BAR_IS_COLOURED = """step => [...document.querySelectorAll("div")].some(each => each.textContent === step
    && !["rgba(0, 0, 0, 0)", "rgb(255, 255, 255)"].includes(getComputedStyle(each).backgroundColor)
    && getComputedStyle(each).borderTopStyle !== "dotted")"""

AssetPath = Sequence[str]


def start_chromium(playwright: Playwright) -> Browser:
    """Debian's Chromium; playwright's own is never downloaded."""
    return playwright.chromium.launch(executable_path=CHROMIUM, args=_CHROMIUM_ARGUMENTS)


def new_visitor(browser: Browser) -> BrowserContext:
    """A browser that was never here: empty storage, and pictures that come out alike on every machine."""
    context = browser.new_context(
        viewport=WINDOW,
        locale="en-US",
        timezone_id="UTC",
        color_scheme="light",
        reduced_motion="reduce",
    )
    context.set_default_timeout(_SEEN_WITHIN_MILLISECONDS)
    return context


class DagsterUI:
    """One page of the UI. Methods that launch return the id of what they launched."""

    def __init__(self, page: Page, server: DagsterServer, pictures: Path) -> None:
        self.page = page
        self._server = server
        self._pictures = pictures

    def open(self, path: str = "/") -> None:
        self.page.goto(f"{self._server.url}{path}")
        expect(self.page.get_by_role("navigation")).to_be_visible(timeout=_SEEN_WITHIN_MILLISECONDS)

    def open_asset(self, asset: AssetPath, view: str = "overview") -> None:
        self.open(f"/assets/{'/'.join(asset)}?view={view}")

    def sees(self, text: str | re.Pattern[str]) -> None:
        """Fails when the text does not come up."""
        expect(self.page.get_by_text(text).first).to_be_visible(timeout=_SEEN_WITHIN_MILLISECONDS)

    def take_picture(self, name: str) -> Path:
        """The viewport as a PNG, when fonts are in, plots stand still and the mouse hovers over nothing."""
        self.page.mouse.move(0, 0)
        self.page.evaluate("document.fonts.ready.then(() => true)")
        for canvas in self.page.locator("canvas").all():
            _wait_until_still(canvas)
        picture = self._pictures / f"{name}.png"
        self.page.screenshot(path=picture, animations="disabled")
        return picture

    def first_run_dialog(self) -> Locator:
        return self.page.get_by_role("dialog").filter(has_text="Join the Dagster community")

    def materialize(self, asset: AssetPath) -> str:
        """Presses Materialize on the page of an asset without partitions."""
        self.open_asset(asset)
        self._button("Materialize").click()
        return self._id_in_toast("Launched run")

    def materialize_group(self, location: str, group: str) -> str:
        """Presses Materialize all on the page of a group without partitions."""
        self.open(f"/locations/__repository__@{location}/asset-groups/{group}/lineage")
        self._button("Materialize all").click()
        return self._id_in_toast("Launched run")

    def materialize_all(self) -> str:
        """Presses Materialize all in the graph of all assets, none of which has partitions."""
        self.open("/asset-groups")
        return self._launched(self._button("Materialize all"))

    def backfill(self, asset: AssetPath, partitions: str, *, count: int, picture: str | None = None) -> str:
        """Fills in the dialog of a partitioned asset: `partitions` as one types them there, `[a...b], c`."""
        self.open_asset(asset)
        self._button("Materialize…").click()
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_role("textbox").fill(partitions)
        # The selection is read when it is confirmed, not as it is typed.
        dialog.get_by_role("textbox").press("Enter")
        expect(dialog.get_by_text(f"{count} partitions", exact=True)).to_be_visible()
        if picture:
            self.take_picture(picture)
        dialog.get_by_role("button", name="Launch backfill").click()
        return self._id_in_toast("Created backfill")

    def open_launchpad(self, location: str, job: str) -> Locator:
        """The editor with the form of a job, when it is filled in."""
        self.open(f"/locations/{location}/jobs/{job}/playground")
        editor = self.page.locator(".CodeMirror")
        expect(editor).to_contain_text("config:")
        return editor

    def launch_from_form(self) -> str:
        """Presses Launch Run in the Launchpad, once it has found the form in order."""
        button = self._button("Launch Run")
        expect(button).to_be_enabled()
        return self._launched(button)

    def open_run(self, run_id: str) -> None:
        self.open(f"/runs/{run_id}")
        self.sees(run_id[:8])

    def sees_end_of(self, run_id: str, *, step: str) -> None:
        """Opens the page of a run that has ended, and returns when its log and its chart are whole."""
        self.open_run(run_id)
        self.sees("Process for run exited")
        self.page.wait_for_function(_BAR_IS_COLOURED, arg=step)

    def filter_events(self, wanted: str) -> None:
        """On the page of a run that has ended: only its events of that kind."""
        box = self.page.get_by_placeholder("Filter…")
        box.fill(wanted)
        box.press("Escape")  # closes the suggestions
        box.blur()
        expect(self.page.get_by_text("Process for run exited")).to_have_count(0)

    def open_backfill(self, backfill_id: str) -> None:
        self.open(f"/runs/b/{backfill_id}")
        self.sees("Partition selection")

    def terminate(self, run_id: str, *, picture: str | None = None) -> None:
        """Asks for it, not by force, and returns when the server has taken the request."""
        self.open_run(run_id)
        self._button("Terminate").click()
        dialog = self.page.get_by_role("dialog")
        confirm = dialog.get_by_role("button", name="Terminate 1 run", exact=True)
        expect(confirm).to_be_visible()
        if picture:
            self.take_picture(picture)
        # The dialog's own word of success is no proof to wait for: it goes, Done button and all, with the run's end.
        with self.page.expect_response(_answers_terminate):
            confirm.click()

    def open_events(self, asset: AssetPath) -> Locator:
        """The metadata table of the newest event."""
        self.open_asset(asset, "events")
        table = self.page.get_by_role("table").first
        expect(table).to_be_visible()
        return table

    def sees_metadata(self, asset: AssetPath, label: str, value: str) -> None:
        """Fails unless the newest event of the asset has this."""
        row = self.open_events(asset).get_by_role("row", name=label)
        expect(row.get_by_role("cell").nth(1)).to_have_text(value)

    def open_plots(self, asset: AssetPath, labels: Sequence[str]) -> None:
        """Returns when a plot is there for each label, and no other."""
        self.open_asset(asset)
        self._button("Plots").click()
        expect(self.page.locator("canvas")).to_have_count(len(labels))
        for label in labels:
            expect(self.page.get_by_text(label, exact=True)).to_be_visible()
        self._button("Plots").evaluate("button => button.scrollIntoView()")
        expect(self.page.locator("canvas").first).to_be_in_viewport()

    def open_lineage(self, names: Sequence[str], *, selection: str, window: ViewportSize = _LARGE_WINDOW) -> None:
        """The graph of a selection with every group open, zoomed out until the nodes of these names are in sight."""
        self.page.set_viewport_size(window)
        self.open(f"/asset-groups~{quote(selection)}/")
        graph = self.page.locator("svg foreignObject")
        expect(graph.first).to_be_visible()
        # Groups start closed, and opening them does not fit the graph to the window.
        self.page.keyboard.press("Alt+e")
        expect(graph.filter(has=self.page.get_by_role("img", name="unfold_less")).first).to_be_visible()
        nodes = [graph.filter(has=self.page.get_by_text(name, exact=True)).last for name in names]
        for _ in range(_MOST_ZOOM_STEPS):
            if all(self._is_in_sight(node) for node in nodes):
                expect(graph.get_by_text("Loading")).to_have_count(0, timeout=_SEEN_WITHIN_MILLISECONDS)
                return
            self.page.get_by_role("button", name="zoom_out").click()
        raise AssertionError(f"not all of {names} came into sight in {_MOST_ZOOM_STEPS} steps of zooming out")

    def open_sensor(self, location: str, sensor: str) -> None:
        self.open(f"/locations/{location}/sensors/{sensor}")
        self.sees("Latest tick")

    def turn_sensor_on(self, location: str, sensor: str) -> None:
        """By the keyboard: the switch is a checkbox that is drawn off the screen, where no mouse gets."""
        self.open_sensor(location, sensor)
        switch = self.page.get_by_role("row", name="Running").get_by_role("checkbox")
        expect(switch).not_to_be_checked()
        switch.press("Space")
        expect(switch).to_be_checked()

    def _button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=re.compile(rf"(^| ){re.escape(name)}$"))

    def _launched(self, button: Locator) -> str:
        """Presses the button, and returns the run that is new. Its toast is gone before a slow machine has looked."""
        before = self._server.newest_run()
        button.click()

        def newer() -> str | None:
            newest = self._server.newest_run()
            return newest if newest != before else None

        return until(newer, "a new run", within_seconds=60)

    def _id_in_toast(self, text: str) -> str:
        toasts = self.page.get_by_role("region", name="Notifications").get_by_role("listitem")
        link = toasts.filter(has_text=text).get_by_role("link", name="View").get_attribute("href")
        assert link, f"no link in the toast {text!r}"
        return link.rsplit("/", 1)[-1]

    def _is_in_sight(self, node: Locator) -> bool:
        """Whether all of a node is in the window, and below the toolbar so far that its group's head may be seen too.
        Nodes out of sight are not even drawn."""
        toolbar = self.page.get_by_role("textbox", name="Search and filter assets").bounding_box()
        box = node.bounding_box() if node.count() else None
        size = self.page.viewport_size
        if not (toolbar and box and size):
            return False
        top, bottom = toolbar["y"] + toolbar["height"] + _GROUP_HEAD_PIXELS, box["y"] + box["height"]
        return box["y"] >= top and bottom <= size["height"] and box["x"] + box["width"] <= size["width"]


def _answers_terminate(response: Response) -> bool:
    return "terminateRuns" in (response.request.post_data or "")


def _wait_until_still(canvas: Locator) -> None:
    until(lambda: canvas.evaluate(_CANVAS_IS_STILL) or None, "a plot to stand still", within_seconds=60)
