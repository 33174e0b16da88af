"""What the drawn pictures of these pages are made of: boxes, texts and arrows, as SVG."""

import html
from collections.abc import Sequence

_INK, _LINE = "#1a237e", "#5c6bc0"
_BOX_LOOK = {"fill": "#eef1fb", "stroke": "#3949ab"}


def element(name: str, content: str = "", **attributes: object) -> str:
    given = "".join(f" {key.replace('_', '-')}='{value}'" for key, value in attributes.items())
    return f"<{name}{given}>{content}</{name}>"


def text(middle: float, line: float, words: str, **attributes: object) -> str:
    look = {"text_anchor": "middle", "font_family": "sans-serif", "font_size": 12, "fill": "#333", **attributes}
    return element("text", html.escape(words), x=round(middle), y=round(line), **look)


def box(
    corner: tuple[float, float], size: tuple[float, float], title: str, note: str, *, is_dashed: bool = False
) -> str:
    """A named box with a note below its name."""
    (x, y), (width, height) = corner, size
    middle = x + width / 2
    look = {**_BOX_LOOK, "fill": "white", "stroke_dasharray": "5 4"} if is_dashed else _BOX_LOOK
    return "".join(
        (
            element("rect", x=round(x), y=round(y), width=round(width), height=round(height), rx=8, **look),
            text(middle, y + height / 2 - 5, title, font_size=16, font_weight="bold", fill=_INK),
            text(middle, y + height / 2 + 15, note),
        )
    )


def frame(corner: tuple[float, float], size: tuple[float, float], title: str) -> str:
    """A dashed frame around boxes, with its title above them."""
    (x, y), (width, height) = corner, size
    look = {"fill": "none", "stroke": _LINE, "stroke_dasharray": "5 4"}
    outline = element("rect", x=round(x), y=round(y), width=round(width), height=round(height), rx=12, **look)
    return outline + text(x + width / 2, y + 22, title, font_size=14, fill=_INK)


def caption(left: float, line: float, words: str) -> str:
    """A sentence below the picture."""
    return text(left, line, words, text_anchor="start", font_size=13)


def arrow(path: str) -> str:
    """An arrow along an SVG path."""
    return element("path", d=path, fill="none", stroke=_LINE, marker_end="url(#tip)")


def picture(size: tuple[int, int], parts: Sequence[str]) -> str:
    """The whole picture as an SVG file."""
    width, height = size
    tip = element("path", d="M0,0 L8,4 L0,8 z", fill=_LINE)
    marker = element(
        "marker", tip, id="tip", viewBox="0 0 8 8", refX=8, refY=4, markerWidth=7, markerHeight=7, orient="auto"
    )
    background = element("rect", width="100%", height="100%", fill="white")
    content = "\n".join((background, element("defs", marker), *parts))
    view = f"0 0 {width} {height}"
    named = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": view, "width": width, "height": height}
    return element("svg", content, **named) + "\n"
