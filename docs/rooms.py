"""Draws the rooms of the package and their imports, from the code: `python -m docs.rooms` writes `pictures/rooms.svg`.

The layers are those that import-linter holds the code to. An arrow is left out where a longer way of arrows says the
same, or there would be fifty of them.
"""

import tomllib
from pathlib import Path

import grimp

from docs.drawing import arrow, box, picture

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "pictures" / "rooms.svg"
PACKAGE = "dagster_airbyte_proto"

_WIDTH, _BOX_HEIGHT, _GAP = 1160, 58, 44


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


def _arrow(start: float, top: float, end: float, bottom: float) -> str:
    bend = (bottom - top) / 2
    path = f"M{start:.0f},{top:.0f} C{start:.0f},{top + bend:.0f} {end:.0f},{bottom - bend:.0f} {end:.0f},{bottom:.0f}"
    return arrow(path)


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
    boxes = [box((x, y), (width, _BOX_HEIGHT), room, _subjects(room)) for room, (x, y, width) in places.items()]
    return picture((_WIDTH, len(rows) * (_BOX_HEIGHT + _GAP)), [*arrows, *boxes])


if __name__ == "__main__":
    PICTURE.write_text(drawing())
