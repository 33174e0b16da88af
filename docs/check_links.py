"""Checks the links of the built pages: `python docs/check_links.py [FOLDER]` fails if one leads nowhere.

MkDocs checks what is written in Markdown. This checks what a reader gets: links of the theme and of the reference,
anchors, and pictures too. Addresses of other sites are left alone.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

SITE = Path(__file__).parent.parent / "build" / "site"
_LINKS = {"a": "href", "link": "href", "img": "src", "script": "src"}


class Page(NamedTuple):
    """The anchors and the links of a page."""

    anchors: frozenset[str]
    links: Sequence[str]


class _PageParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := found.get(name))}
        if tag in _LINKS and (link := found.get(_LINKS[tag])):
            self.links.append(link)


def dead_links(site: Path) -> Iterator[str]:
    """Yields a line for each link of the site that leads nowhere."""
    pages = {path: _page(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        # The page of a 404 is shown at any address, so its links start at the root.
        folder = site if path.name == "404.html" else path.parent
        for link in page.links:
            if fault := _fault(link, path, folder, site, pages):
                yield f"{path.relative_to(site)}: {link}: {fault}"


def _page(path: Path) -> Page:
    parser = _PageParser()
    parser.feed(path.read_text(encoding="utf-8"))
    return Page(frozenset(parser.anchors), parser.links)


def _fault(link: str, path: Path, folder: Path, site: Path, pages: Mapping[Path, Page]) -> str:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return ""
    target = path
    if parts.path:
        start = site if parts.path.startswith("/") else folder
        target = (start / unquote(parts.path).lstrip("/")).resolve()
        target = target / "index.html" if target.is_dir() else target
    if not target.is_file():
        return "there is no such file"
    anchor = unquote(parts.fragment)
    if anchor and target in pages and anchor not in pages[target].anchors:
        return "the page has no such anchor"
    return ""


if __name__ == "__main__":
    dead = [*dead_links(Path(sys.argv[1]).resolve() if sys.argv[1:] else SITE)]
    sys.exit("\n".join(dead) or None)
