"""Draws where things run: `python -m docs.deployments` writes a picture of each way to deploy to `pictures/`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from docs.drawing import arrow, box, caption, frame, picture

FOLDER = Path(__file__).parent / "pictures"

_BOX, _GAP, _TITLE, _BETWEEN = (250, 58), 16, 34, 70
_WIDTH, _LINE = _BOX[0] + 2 * _GAP, _BOX[1] + 2 * _GAP

_Point = tuple[float, float]


class Box(NamedTuple):
    """Something that runs or is kept. `to` names what it calls or writes."""

    name: str
    note: str
    to: Sequence[str] = ()
    is_tried: bool = True


class Machine(NamedTuple):
    """A frame with a box on each line, or none: a machine, a container, or what is shared."""

    title: str
    lines: Sequence[Box | None]

    @property
    def boxes(self) -> list[tuple[int, Box]]:
        return [(line, each) for line, each in enumerate(self.lines) if each is not None]

    @property
    def height(self) -> int:
        return _TITLE + len(self.lines) * _LINE


class Deployment(NamedTuple):
    """Columns of machines, from left to right; those of one column stand below each other.

    `cluster` is the title of a frame around all columns but the last.
    """

    columns: Sequence[Sequence[Machine]]
    cluster: str = ""
    caption: str = ""

    @classmethod
    def of(cls, *machines: Machine) -> "Deployment":
        return cls([[machine] for machine in machines])

    @property
    def boxes(self) -> list[Box]:
        return [each for column in self.columns for machine in column for _, each in machine.boxes]


_TABLES = Box("Tables", "a folder, HDFS or an object store")
_STATE = Box("PostgreSQL", "state, and Dagster's storage")
_SERVICES = (
    Box("Web server", "assets, runs, lineage", ("Daemon",)),
    Box("Daemon", "schedules, sensors, the queue"),
)

PICTURES: dict[str, Deployment] = {
    "one-machine": Deployment.of(
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
    "several-machines": Deployment.of(
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
    "cluster": Deployment.of(
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
    "connect": Deployment.of(
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
    "kubernetes": Deployment(
        (
            (
                Machine(
                    "Dagster's pods",
                    (_SERVICES[0], Box("Daemon", "starts runs by K8sRunLauncher", ("Step",), is_tried=False)),
                ),
            ),
            (
                Machine(
                    "A run's pod: one container",
                    (
                        Box("Connector", "local, pypi, npm or wasm", ("Step",)),
                        Box("Step", "stages rows, commits: 360 MiB", ("Connect server", "PostgreSQL", "Object store")),
                    ),
                ),
                Machine(
                    "Spark's pods",
                    (
                        Box("Connect server", "one JVM for all runs", ("Executors", "Object store")),
                        Box("Executors", "started by Spark, or its operator", ("Object store",), is_tried=False),
                    ),
                ),
            ),
            (Machine("Shared", (None, _STATE, None, Box("Object store", "tables, by a catalog server"))),),
        ),
        cluster="Kubernetes",
        caption="Nothing was tried on Kubernetes itself. "
        "Solid: tried as processes or containers of one machine. Dashed: not tried.",
    ),
}


def drawing(deployment: Deployment) -> str:
    """The picture of a deployment as SVG."""
    placed = list(_placed(deployment))
    places = {
        each.name: (x + _GAP, y + _TITLE + line * _LINE + _GAP // 2)
        for machine, (x, y), _ in placed
        for line, each in machine.boxes
    }
    frames = [frame(corner, size, machine.title) for machine, corner, size in placed]
    boxes = [
        box(places[each.name], _BOX, each.name, each.note, is_dashed=not each.is_tried) for each in deployment.boxes
    ]
    arrows = [arrow(_way(places[each.name], places[other])) for each in deployment.boxes for other in each.to]
    right, below = (max(corner[axis] + size[axis] for _, corner, size in placed) for axis in (0, 1))
    if deployment.cluster:
        inside = [corner[0] + size[0] for _, corner, size in placed if corner[0] + size[0] < right]
        around = (max(inside), below + _GAP // 2)
        frames.insert(0, frame((_GAP, _GAP / 2), around, deployment.cluster))
        below += _GAP
    if deployment.caption:
        frames.append(caption(_GAP, below + _TITLE - _GAP / 2, deployment.caption))
        below += _TITLE - _GAP / 2
    return picture((round(right + _GAP), round(below + _GAP / 2)), [*frames, *boxes, *arrows])


def _placed(deployment: Deployment) -> Iterator[tuple[Machine, _Point, _Point]]:
    """Yields each machine with the corner and the size of its frame. Columns end at one line."""
    heights = [sum(machine.height + _GAP for machine in column) - _GAP for column in deployment.columns]
    inset = _GAP if deployment.cluster else 0
    for number, column in enumerate(deployment.columns):
        is_outside = deployment.cluster and number == len(deployment.columns) - 1
        x = _GAP + number * (_WIDTH + _BETWEEN) + inset * (2 if is_outside else 1)
        y = _GAP // 2 + (_TITLE if deployment.cluster else 0)
        for machine in column:
            is_last = machine is column[-1]
            is_stretched = is_last and (is_outside or not deployment.cluster)
            height = machine.height + (max(heights) - heights[number] if is_stretched else 0)
            yield machine, (x, y), (_WIDTH, height)
            y += height + _GAP


def _way(start: tuple[float, float], end: tuple[float, float]) -> str:
    """Along the column from bottom to top or back, else from side to side."""
    (x, y), (to_x, to_y) = start, end
    if x == to_x:
        is_next = abs(y - to_y) <= _LINE
        middle = x + _BOX[0] / (2 if is_next else 8)  # beside the title of the machine below
        return f"M{middle},{y + _BOX[1]} V{to_y}" if to_y > y else f"M{middle},{y} V{to_y + _BOX[1]}"
    x, to_x = (x + _BOX[0], to_x) if to_x > x else (x, to_x + _BOX[0])
    y, to_y, between = y + _BOX[1] / 2, to_y + _BOX[1] / 2, (x + to_x) / 2
    return f"M{x},{y} C{between},{y} {between},{to_y} {to_x},{to_y}"


if __name__ == "__main__":
    for name, deployment in PICTURES.items():
        (FOLDER / f"deploy-{name}.svg").write_text(drawing(deployment))
