"""Draws where things run: `python -m docs.deployments` writes a picture of each way to deploy to `pictures/`."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from docs.drawing import arrow, box, frame, picture

FOLDER = Path(__file__).parent / "pictures"

_BOX, _GAP, _TITLE, _BETWEEN = (250, 58), 16, 34, 70


class Box(NamedTuple):
    """Something that runs or is kept. `to` names what it calls or writes."""

    name: str
    note: str
    to: Sequence[str] = ()


class Machine(NamedTuple):
    """A frame with a box on each line, or none: a machine, a container, or what is shared."""

    title: str
    lines: Sequence[Box | None]

    @property
    def boxes(self) -> list[tuple[int, Box]]:
        return [(line, each) for line, each in enumerate(self.lines) if each is not None]


_TABLES = Box("Tables", "a folder, HDFS or an object store")
_STATE = Box("PostgreSQL", "state, and Dagster's storage")
_SERVICES = (
    Box("Web server", "assets, runs, lineage", ("Daemon",)),
    Box("Daemon", "schedules, sensors, the queue"),
)

PICTURES: dict[str, Sequence[Machine]] = {
    "one-machine": (
        Machine("Dagster", (_SERVICES[0], _SERVICES[1]._replace(to=("Step",)))),
        Machine(
            "A run",
            (
                Box("Connector", "a process of its own", ("Step",)),
                Box("Step", "stages, commits: 360 MiB", ("Home folder",)),
                Box("JVM", "Spark's driver: 450 MiB", ("Home folder",)),
            ),
        ),
        Machine("Disk", (Box("Home folder", "state.db, warehouse, logs"),)),
    ),
    "several-machines": (
        Machine("Machine of Dagster", (_SERVICES[0], _SERVICES[1]._replace(to=("Step",)))),
        Machine(
            "Machines of runs",
            (
                Box("Connector", "a process of its own", ("Step",)),
                Box("Step", "stages, commits", ("Tables", "PostgreSQL")),
                Box("JVM", "Spark's driver", ("Tables",)),
            ),
        ),
        Machine("Shared", (_STATE, _TABLES)),
    ),
    "cluster": (
        Machine(
            "Spark's workers",
            (
                None,
                Box("Connector", "a process of its own", ("Task",)),
                Box("Task", "stages rows, calls the driver: 360 MiB", ("Step", "Tables")),
            ),
        ),
        Machine(
            "Machine of runs",
            (
                Box("Step", "announces, commits, waits", ("PostgreSQL",)),
                Box("JVM", "Spark's driver", ("Tables",)),
            ),
        ),
        Machine("Shared", (_STATE, None, _TABLES)),
    ),
    "connect": (
        Machine(
            "Machines of runs",
            (
                Box("Connector", "a process of its own", ("Step",)),
                Box("Step", "stages rows; no JVM: 360 MiB", ("Connect server", "Tables")),
            ),
        ),
        Machine("Spark", (Box("Connect server", "one JVM for all runs", ("Tables",)),)),
        Machine("Shared", (_STATE, _TABLES)),
    ),
}


def drawing(machines: Sequence[Machine]) -> str:
    """The picture of these machines as SVG, from left to right."""
    width = _BOX[0] + 2 * _GAP
    places = {
        each.name: (_GAP + number * (width + _BETWEEN) + _GAP, _TITLE + _GAP + line * (_BOX[1] + 2 * _GAP))
        for number, machine in enumerate(machines)
        for line, each in machine.boxes
    }
    lines = max(len(machine.lines) for machine in machines)
    height = _TITLE + lines * (_BOX[1] + 2 * _GAP)
    frames = [
        frame((_GAP + number * (width + _BETWEEN), _GAP / 2), (width, height), machine.title)
        for number, machine in enumerate(machines)
    ]
    named = [each for machine in machines for _, each in machine.boxes]
    boxes = [box(places[each.name], _BOX, each.name, each.note) for each in named]
    arrows = [arrow(_way(places[each.name], places[other])) for each in named for other in each.to]
    size = (2 * _GAP + len(machines) * width + (len(machines) - 1) * _BETWEEN, height + _GAP)
    return picture(size, [*frames, *boxes, *arrows])


def _way(start: tuple[float, float], end: tuple[float, float]) -> str:
    """Along the column from bottom to top or back, else from side to side."""
    (x, y), (to_x, to_y) = start, end
    if x == to_x:
        middle = x + _BOX[0] / 2
        return f"M{middle},{y + _BOX[1]} V{to_y}" if to_y > y else f"M{middle},{y} V{to_y + _BOX[1]}"
    x, to_x = (x + _BOX[0], to_x) if to_x > x else (x, to_x + _BOX[0])
    y, to_y, between = y + _BOX[1] / 2, to_y + _BOX[1] / 2, (x + to_x) / 2
    return f"M{x},{y} C{between},{y} {between},{to_y} {to_x},{to_y}"


if __name__ == "__main__":
    for name, machines in PICTURES.items():
        (FOLDER / f"deploy-{name}.svg").write_text(drawing(machines))
