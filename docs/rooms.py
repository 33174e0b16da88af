"""Draws the rooms of the package and their imports, from the code: `python docs/rooms.py` writes `pictures/rooms.svg`.

The layers are those that import-linter holds the code to. An arrow is left out where a longer way of arrows says the
same, or there would be fifty of them.
"""

import html
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "pictures" / "rooms.svg"
PACKAGE = "dagster_airbyte_proto"

_WIDTH, _BOX_HEIGHT, _GAP = 1160, 58, 44
_BOX_LOOK = {"fill": "#eef1fb", "stroke": "#3949ab"}


def layers() -> list[list[str]]:
    """The layers of the package from top to bottom, each with its rooms; single modules stand together at the end."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rows = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    rooms = [[room.strip().removeprefix(f"{PACKAGE}.") for room in row.split("|")] for row in rows]
    folders = [[room for room in row if (ROOT / PACKAGE / room).is_dir()] for row in rooms]
    modules = [room for row in rooms for room in row if not (ROOT / PACKAGE / room).is_dir()]
    return [*filter(None, folders), [" ".join(modules)]]


def imports(rooms: list[str]) -> dict[str, set[str]]:
    """The rooms that each room imports."""
    graph = grimp.build_graph(PACKAGE)
    found: dict[str, set[str]] = {room: set() for room in rooms}
    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            room, other_room = (f"{name}.".split(".")[1] for name in (module, other))
            if room != other_room and {room, other_room} <= found.keys():
                found[room].add(other_room)
    return found


def essential(found: dict[str, set[str]]) -> list[tuple[str, str]]:
    """The imports that no longer way of imports implies."""
    reached: dict[str, set[str]] = {}

    def reach(room: str) -> set[str]:
        if room not in reached:
            reached[room] = found[room].union(*map(reach, found[room]))
        return reached[room]

    return sorted(
        (room, other)
        for room, others in found.items()
        for other in others
        if not any(other in reach(between) for between in others - {other})
    )


def _subjects(room: str) -> str:
    folder = ROOT / PACKAGE / room
    if not folder.is_dir():
        return "words and tools that every room may use"
    return ", ".join(sorted(each.name for each in folder.iterdir() if (each / "__init__.py").exists()))


def _element(name: str, content: str = "", **attributes: object) -> str:
    given = "".join(f" {key.replace('_', '-')}='{value}'" for key, value in attributes.items())
    return f"<{name}{given}>{content}</{name}>"


def _text(middle: float, line: float, text: str, **attributes: object) -> str:
    look = {"text_anchor": "middle", "font_family": "sans-serif", **attributes}
    return _element("text", html.escape(text), x=round(middle), y=round(line), **look)


def _box(room: str, x: float, y: float, width: float) -> str:
    middle = x + width / 2
    return "".join(
        (
            _element("rect", x=round(x), y=round(y), width=round(width), height=_BOX_HEIGHT, rx=8, **_BOX_LOOK),
            _text(middle, y + 24, room, font_size=16, font_weight="bold", fill="#1a237e"),
            _text(middle, y + 44, _subjects(room), font_size=12, fill="#333"),
        )
    )


def _arrow(start: float, top: float, end: float, bottom: float) -> str:
    bend = (bottom - top) / 2
    path = f"M{start:.0f},{top:.0f} C{start:.0f},{top + bend:.0f} {end:.0f},{bottom - bend:.0f} {end:.0f},{bottom:.0f}"
    return _element("path", d=path, fill="none", stroke="#5c6bc0", marker_end="url(#tip)")


def drawing() -> str:
    """The picture as SVG."""
    rows = layers()
    places: dict[str, tuple[float, float, float]] = {}
    for level, row in enumerate(rows):
        width = max(min(440, (_WIDTH - _GAP) / len(row) - _GAP), 10 * max(map(len, row)))
        left = (_WIDTH - len(row) * (width + _GAP) + _GAP) / 2
        for number, room in enumerate(row):
            places[room] = (left + number * (width + _GAP), _GAP / 2 + level * (_BOX_HEIGHT + _GAP), width)
    arrows = []
    for room, other in essential(imports([*places])):
        (x, y, width), (other_x, other_y, other_width) = places[room], places[other]
        arrows.append(_arrow(x + width / 2, y + _BOX_HEIGHT, other_x + other_width / 2, other_y))
    tip = _element("path", d="M0,0 L8,4 L0,8 z", fill="#5c6bc0")
    marker = _element(
        "marker", tip, id="tip", viewBox="0 0 8 8", refX=8, refY=4, markerWidth=7, markerHeight=7, orient="auto"
    )
    boxes = [_box(room, *place) for room, place in places.items()]
    background = _element("rect", width="100%", height="100%", fill="white")
    content = "\n".join((background, _element("defs", marker), *arrows, *boxes))
    size = {"width": _WIDTH, "height": len(rows) * (_BOX_HEIGHT + _GAP)}
    view = f"0 0 {size['width']} {size['height']}"
    return _element("svg", content, xmlns="http://www.w3.org/2000/svg", viewBox=view, **size) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(drawing())
