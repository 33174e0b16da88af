"""`doctor`. Slow modules are imported when the command runs; see call.py."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from dagster_airbyte_proto.cli.call import Call, command_in
from dagster_airbyte_proto.cli.output import Answer, wrapped_lines
from dagster_airbyte_proto.cli.program import program
from dagster_airbyte_proto.plurals import counted

if TYPE_CHECKING:
    from dagster_airbyte_proto.diagnosis.health_check import Finding

_VERDICT_WIDTH, _PART_WIDTH = 9, 13


@command_in(program, "doctor")
@click.argument("connection_files", nargs=-1, metavar="[C]...")
@click.option("--quick", is_flag=True, help="Do not start Spark, which takes some seconds.")
def doctor(call: Call, connection_files: tuple[str, ...], quick: bool) -> Answer:
    """Tests everything that syncs need on this machine, and names one thing to do for each fault.

    Docker and sandboxes are optional: without them you get a warning. It is a failure for connections that need them,
    if you name their files.
    """
    from dagster_airbyte_proto.diagnosis.health_check import Verdict
    from dagster_airbyte_proto.diagnosis.machine import diagnosis

    settings = call.settings()
    connections = [call.open(file) for file in connection_files]
    call.connection = None
    findings = list(diagnosis(settings, connections, is_quick=quick, on_check=_show_check))
    _show_check("")
    counts = {verdict: sum(each.verdict is verdict for each in findings) for verdict in Verdict}
    worst = next((verdict for verdict in reversed(Verdict) if counts[verdict]), Verdict.OK)
    value = {
        "status": worst.value,
        "findings": [{**each._asdict(), "verdict": each.verdict.value} for each in findings],
    }
    lines = [line for each in findings for line in _lines(each)]
    return Answer(value, (*lines, "", _summary(counts[Verdict.FAILS], counts[Verdict.WARNING])), worst is Verdict.FAILS)


def _show_check(part: str) -> None:
    """Shows on a terminal what is being tried, in one line that goes away."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{f'trying: {part} …' if part else ''}", err=True, nl=False)


def _summary(fails: int, warnings: int) -> str:
    if not fails and not warnings:
        return "everything works"
    counts = [f"{fails} of these must be mended"] if fails else ["nothing fails"]
    return ", ".join([*counts, *([counted(warnings, "warning")] if warnings else [])])


def _lines(finding: "Finding") -> Iterator[str]:
    start = f"{finding.verdict.value:{_VERDICT_WIDTH}}{finding.part:{_PART_WIDTH}}"
    indent = " " * len(start)
    yield from wrapped_lines(finding.found, start, indent)
    if finding.remedy:
        yield from wrapped_lines(finding.remedy, f"{indent}→ ", f"{indent}  ")
