"""The cases of the benchmark: which contenders run beside each other, and the limits of their ratios."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from math import pi, sqrt
from statistics import fmean, linear_regression, median, stdev
from typing import Any, NamedTuple

from bench.generate import Dialect, Recipe
from bench.process_tree import Measured


class Contender(NamedTuple):
    """A module of `bench.contenders`. `environment` is one of `environments.PINS`, or empty for our own.

    `counts_startup`: the whole process is measured from its start, not the work alone. `recipe` makes the records where
    they are not the case's.
    """

    name: str
    module: str
    environment: str = ""
    dialect: Dialect | None = None
    options: Mapping[str, Any] = {}
    counts_startup: bool = False
    recipe: Recipe | None = None


BARE = Contender("bare", "bare")
STAGING = Contender("staging", "staging")
SYNC = Contender("sync", "sync")
PYAIRBYTE = Contender("pyairbyte", "pyairbyte", "pyairbyte")
DLT = Contender("dlt", "dlt_peer", "dlt", None, {"settings": {}})
# Write buffers ten times its own; the files between extract and normalize are not gzipped, a third of all its CPU.
DLT_TURNED = DLT._replace(name="dlt-turned", options={"settings": {
    "DATA_WRITER__BUFFER_MAX_ITEMS": "50000",
    "DATA_WRITER__FILE_MAX_BYTES": "134217728",
    "DATA_WRITER__DISABLE_COMPRESSION": "true",
}})  # fmt: skip
_CSV: dict[str, Any] = {"target": "target-csv", "version": "0.5.0", "config": {"output_path": "{folder}"}}
SINGER = Contender("singer-csv", "singer_target", "target-csv", Dialect.SINGER, _CSV)
# It validates no record and adds no metadata columns.
SINGER_TURNED = SINGER._replace(name="singer-csv-turned", options=_CSV | {"config": {
    "output_path": "{folder}", "validate_records": False, "add_record_metadata": False, "batch_size_rows": 10_000,
}})  # fmt: skip
SINGER_JSONL = Contender("singer-jsonl", "singer_target", "target-jsonl", Dialect.SINGER, {
    "target": "target-jsonl", "version": "0.1.4", "config": {"destination_path": "{folder}"},
})  # fmt: skip
SINGER_DUCKDB = Contender("singer-duckdb", "singer_target", "target-duckdb", Dialect.SINGER, {
    "target": "target-duckdb",
    "version": "0.8.0",
    "config": {"filepath": "{folder}/landed.duckdb", "default_target_schema": "main", "batch_size_rows": 100_000,
               "validate_records": False},
})  # fmt: skip
_FAKER: dict[str, Any] = {"name": "source-faker", "config": {"count": 1000, "seed": 1}}
OURS = (STAGING, SYNC)
OF_TAPS = tuple(each._replace(dialect=Dialect.SINGER, options={"protocol": "singer"}) for each in OURS)
SLOW_SYNC = SYNC._replace(options={"source": {"bytes_per_second": 20_000_000}})
COLD_SYNC = Contender("sync", "cold_sync", "", None, _FAKER, counts_startup=True)
COLD_PYAIRBYTE = Contender("pyairbyte", "pyairbyte", "pyairbyte", None,
                           {**_FAKER, "streams": ["users", "products", "purchases"]}, counts_startup=True)  # fmt: skip

_IDLE: dict[str, Any] = {"name": "source-faker", "config": {"count": 1000, "seed": 1, "always_updated": False}}
IDLE_SYNC = Contender("sync", "idle_sync", options={**_IDLE, "opens_tables": False})
IDLE_SYNC_WITH_JVM = Contender("sync with its JVM", "idle_sync", options={**_IDLE, "opens_tables": True})
IDLE_PYAIRBYTE = Contender("pyairbyte", "idle_pyairbyte", "pyairbyte", None,
                           {**_IDLE, "streams": ["users", "products", "purchases"]})  # fmt: skip


class Case(NamedTuple):
    """Contenders that are compared within a round. `recipe` is None where a real connector of `source` makes the
    records. A case of short runs and narrow limits has `times` as many rounds: a slow minute of the machine is a tenth
    of a long run, and all of a short one."""

    name: str
    contenders: tuple[Contender, ...]
    recipe: Recipe | None = None
    source: str = ""
    played_bytes: int = 0
    times: int = 1


def cases(records: int, soak_bytes: int) -> list[Case]:
    """The cases of one size. One sync reads `soak_bytes`; 0 for no such case."""
    normal = Recipe(records=records)
    wide = Recipe(records=max(1000, records // 25), columns=500, streams=1)
    many = Recipe(records=max(1000, records // 10), streams=max(10, records // 1000))
    fifth = normal._replace(records=max(1000, records // 5))
    half = many._replace(records=many.records // 2, streams=many.streams // 2)
    soak = [Case("soak", (SYNC,), normal, played_bytes=soak_bytes)] if soak_bytes else []
    return [
        Case("normal", (BARE, STAGING, SYNC), normal, times=3),
        Case("peers", (SYNC, DLT_TURNED, DLT, PYAIRBYTE, SINGER_TURNED, SINGER, SINGER_JSONL), normal),
        Case("tap", (*_beside("normal", normal, *OF_TAPS), SINGER_DUCKDB), normal),
        Case("line by line", _beside("normal", normal, *OURS), normal._replace(run_length=1)),
        Case("state every 10", _beside("normal", normal, *OURS), normal._replace(state_every=10)),
        Case("spaced", _beside("normal", normal, *OURS), normal._replace(dialect=Dialect.SPACED)),
        Case("8 KB at a time", _beside("a MB at a time", fifth, SLOW_SYNC), fifth),
        Case("5 % misfits", _beside("normal", normal, *OURS), normal._replace(misfits=0.05)),
        Case("500 columns", _beside("250 columns", wide._replace(columns=250), BARE, *OURS), wide, times=3),
        Case("another order", _beside("the catalog's order", wide, *OURS), wide._replace(is_catalog_reversed=True)),
        Case("all streams", _beside("half the streams", half, BARE, *OURS), many),
        Case("cold", (COLD_SYNC, COLD_PYAIRBYTE), source="source-faker"),
        Case("idle", (IDLE_SYNC, IDLE_SYNC_WITH_JVM, IDLE_PYAIRBYTE), source="source-faker"),
        *soak,
    ]


def _beside(name: str, recipe: Recipe, *contenders: Contender) -> tuple[Contender, ...]:
    """Each contender, followed by the one that the case compares it with."""
    others = (it._replace(name=f"{it.name} of {name}", dialect=None, options={}, recipe=recipe) for it in contenders)
    return tuple(it for pair in zip(contenders, others, strict=True) for it in pair)


class Cell(NamedTuple):
    """One contender in one case: the seconds of each run, in the order of the rounds, and medians; of a soak the peaks
    within each gigabyte, run by run."""

    case: str
    contender: str
    cpu_of_runs: tuple[float, ...]
    wall_of_runs: tuple[float, ...]
    whole_cpu_seconds: float
    peak_bytes: int
    tree_peak_bytes: int
    rows: int
    gigabyte_peaks: tuple[tuple[int, ...], ...]
    versions: dict[str, str]


Figures = dict[tuple[str, str], Cell]


class Estimate(NamedTuple):
    """A figure and its standard error, where that is known."""

    value: float
    error: float = 0.0


class Limit(NamedTuple):
    """`figure` gives None if what it compares was not run. A figure above the limit by no more than twice its error
    cannot be told from what keeps it."""

    says: str
    at_most: float
    figure: Callable[[Figures], Estimate | None]


# A median's error over a mean's, of what scatters normally.
_OF_A_MEDIAN = sqrt(pi / 2)


def ratio(
    what: tuple[str, str], of: tuple[str, str], field: str = "cpu_of_runs"
) -> Callable[[Figures], Estimate | None]:
    """The ratio of two contenders: the median of the rounds, in each of which both ran in the same minutes. From three
    rounds on it has an error, by their scatter."""

    def figure(figures: Figures) -> Estimate | None:
        if what not in figures or of not in figures:
            return None
        pairs = zip(getattr(figures[what], field), getattr(figures[of], field), strict=True)
        ratios = [seconds / beside for seconds, beside in pairs]
        error = _OF_A_MEDIAN * stdev(ratios) / sqrt(len(ratios)) if len(ratios) > 2 else 0.0
        return Estimate(median(ratios), error)

    return figure


def soak_peak_megabytes(figures: Figures) -> Estimate | None:
    cell = figures.get(("soak", "sync"))
    return Estimate(cell.peak_bytes / (1 << 20)) if cell else None


def soak_growth(figures: Figures) -> Estimate | None:
    cell = figures.get(("soak", "sync"))
    return growth(cell.gigabyte_peaks) if cell else None


def growth(runs: Sequence[Sequence[int]]) -> Estimate | None:
    """The peak within the last gigabyte over that within the second, by a line through all from the second on, each
    run's around its own mean: two single gigabytes differ by chance. None where there are too few to tell."""
    peaks = [run[1:] for run in runs]
    places = [(at - (len(run) - 1) / 2, peak / fmean(run) - 1) for run in peaks for at, peak in enumerate(run)]
    freedom = len(places) - len(peaks) - 1
    if freedom < 1:
        return None
    slope = linear_regression(*zip(*places, strict=True), proportional=True).slope
    misses = sum((height - slope * at) ** 2 for at, height in places)
    error = sqrt(misses / freedom / sum(at * at for at, _ in places))
    steps = max(map(len, peaks)) - 1
    return Estimate(1 + slope * steps, error * steps)


_SYNC_BY_PEERS = ("peers", "sync")

LIMITS = (
    Limit("staging / bare, CPU", 1.15, ratio(("normal", "staging"), ("normal", "bare"))),
    Limit("warm sync / bare, CPU", 1.3, ratio(("normal", "sync"), ("normal", "bare"))),
    Limit("warm sync / PyAirbyte, CPU", 0.1, ratio(_SYNC_BY_PEERS, ("peers", "pyairbyte"))),
    Limit("warm sync / dlt, CPU", 0.1, ratio(_SYNC_BY_PEERS, ("peers", "dlt"))),
    Limit("warm sync / dlt, its settings turned, CPU", 0.1, ratio(_SYNC_BY_PEERS, ("peers", "dlt-turned"))),
    Limit("warm sync / target-csv, CPU", 0.1, ratio(_SYNC_BY_PEERS, ("peers", "singer-csv"))),
    Limit(
        "warm sync / target-csv, its settings turned, CPU", 0.1, ratio(_SYNC_BY_PEERS, ("peers", "singer-csv-turned"))
    ),
    Limit("warm sync / target-jsonl, CPU", 0.1, ratio(_SYNC_BY_PEERS, ("peers", "singer-jsonl"))),
    Limit("warm sync of a tap / target-duckdb, CPU", 0.1, ratio(("tap", "sync"), ("tap", "singer-duckdb"))),
    *(
        Limit(f"{ours}: {case} / {beside}, CPU", most, ratio((case, ours), (case, f"{ours} of {beside}")))
        for case, beside, most in (
            ("tap", "normal", 1.1),
            ("line by line", "normal", 2.0),
            ("state every 10", "normal", 2.0),
            ("spaced", "normal", 2.0),
            ("5 % misfits", "normal", 2.0),
            ("500 columns", "250 columns", 2.0),
            ("another order", "the catalog's order", 1.1),
            ("all streams", "half the streams", 2.0),
        )
        for ours in ("staging", "sync")
    ),
    Limit(
        "sync: 8 KB at a time / a MB at a time, CPU", 2.0,
        ratio(("8 KB at a time", "sync"), ("8 KB at a time", "sync of a MB at a time")),
    ),
    Limit("soak: peak memory of the Python process, MiB", 512, soak_peak_megabytes),
    Limit("soak: peak in the last GB / in the second", 1.0, soak_growth),
    Limit(
        "cold sync of 1,000 faker users / PyAirbyte, wall", 1.0,
        ratio(("cold", "sync"), ("cold", "pyairbyte"), "wall_of_runs"),
    ),
    Limit(
        "sync that brings nothing / the same with its JVM started, CPU", 0.5,
        ratio(("idle", "sync"), ("idle", "sync with its JVM")),
    ),
    Limit("sync that brings nothing / PyAirbyte, CPU", 1.0, ratio(("idle", "sync"), ("idle", "pyairbyte"))),
)  # fmt: skip


def cell(case: Case, contender: Contender, measured: list[Measured], costs: list[dict[str, Any]]) -> Cell:
    """Peaks are the highest of any round."""
    by_gigabyte = tuple(_whole_gigabytes(run.gigabyte_peaks) for run in measured) if case.played_bytes else ()
    return Cell(
        case=case.name,
        contender=contender.name,
        cpu_of_runs=tuple(cost["cpu_seconds"] for cost in costs),
        wall_of_runs=tuple(cost["wall_seconds"] for cost in costs),
        whole_cpu_seconds=median(run.cpu_seconds for run in measured),
        peak_bytes=max(chain((cost["peak_bytes"] for cost in costs), *by_gigabyte)),
        tree_peak_bytes=max(run.tree_peak_bytes for run in measured),
        rows=costs[-1]["rows"],
        gigabyte_peaks=by_gigabyte,
        versions=costs[-1]["versions"],
    )


def _whole_gigabytes(peaks: tuple[int, ...]) -> tuple[int, ...]:
    """The rest after the last whole gigabyte is counted with it."""
    if len(peaks) < 3:
        return peaks
    return (*peaks[:-2], max(peaks[-2:]))
