"""`certify`. Slow modules are imported when the command runs; see call.py."""

import sys
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dagster_airbyte_proto.atomic_files import write_atomically
from dagster_airbyte_proto.cli.call import Call, command_in
from dagster_airbyte_proto.cli.commands.spec_check_discover import show_log_line
from dagster_airbyte_proto.cli.output import Answer, counted, wrapped_lines
from dagster_airbyte_proto.cli.program import program
from dagster_airbyte_proto.cli.progress import size_text
from dagster_airbyte_proto.errors import ConfigError

if TYPE_CHECKING:
    from dagster_airbyte_proto.certification.certificate import Certificate, Measures
    from dagster_airbyte_proto.certification.rule import JudgedRule

_OUTCOME_WIDTH = len("does not apply") + 2
_FILE = click.Path(dir_okay=False, path_type=Path)


@command_in(program, "certify")
@click.argument("connection_file", metavar="C")
@click.option("--html", "html_file", metavar="FILE", type=_FILE, help="Write a report to look at, in one file.")
@click.option("--junit", "junit_file", metavar="FILE", type=_FILE, help="Write JUnit XML, for CI.")
@click.option(
    "--record",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Record the good requests in DIR, for `launch: {kind: replay}`.",
)
@click.option("--query-seconds", metavar="N", default=120.0, show_default=True, help="Bound of each short request.")
@click.option("--read-seconds", metavar="N", default=600.0, show_default=True, help="Bound of each read.")
def certify(
    call: Call,
    connection_file: str,
    folder: Path | None,
    html_file: Path | None,
    junit_file: Path | None,
    **bounds: float,
) -> Answer:
    """Holds a source connector to the rules of its protocol, whatever it is launched by.

    It starts the connector a dozen times: with the connection's config and with bad ones, to the end, cancelled and
    resumed from its states. Nothing is written to tables, and no state moves. Exit code 1 if a rule is broken.
    """
    from dagster_airbyte_proto.certification.certificate import certify as certify_connector
    from dagster_airbyte_proto.certification.reports.html_page import html_page
    from dagster_airbyte_proto.certification.reports.junit import junit_xml
    from dagster_airbyte_proto.certification.watching.watched_source import Bounds, Gathering

    connection = call.open(connection_file)
    on_line = partial(show_log_line, is_verbose=True) if call.is_verbose else _ignore_line
    options = Gathering(Bounds(**bounds), folder, _show_step, on_line)
    with call.engine() as engine:
        certificate = certify_connector(engine, connection, options)
    _show_step("")
    if html_file is not None:
        _write(html_file, html_page(certificate).encode())
    if junit_file is not None:
        _write(junit_file, junit_xml(certificate))
    value = {**certificate.value, "recording": str(folder) if folder else None}
    return Answer(value, tuple(_lines(certificate)), 1 if certificate.is_broken else 0)


def _write(file: Path, content: bytes) -> None:
    try:
        write_atomically(file, content)
    except OSError as error:
        raise ConfigError(f"writing {file}", error.strerror or str(error), remedy="Name another file.") from error


def _ignore_line(level: str, text: str) -> None:
    """The bad configs of a certification make a connector log errors that are none."""


def _show_step(step: str) -> None:
    """Shows on a terminal what is being tried, in one line that goes away."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{f'trying: {step} …' if step else ''}", err=True, nl=False)


def _lines(certificate: "Certificate") -> Iterator[str]:
    yield f"{certificate.connection}: {certificate.protocol}, {certificate.connector}"
    for subject, rules in groupby(certificate.rules, lambda each: each.rule.subject):
        yield ""
        yield subject
        for each in rules:
            yield from _rule_lines(each)
    if certificate.measures is not None:
        yield from ("", _measure_line(certificate.measures))
    yield ""
    yield _summary(certificate)


def _rule_lines(each: "JudgedRule") -> Iterator[str]:
    from dagster_airbyte_proto.certification.rule import Outcome

    rule, ruling = each
    start = f"{ruling.outcome.value:{_OUTCOME_WIDTH}}"
    indent = " " * len(start)
    yield from wrapped_lines(rule.demand, start, indent)
    yield from wrapped_lines(ruling.met, f"{indent}  ", f"{indent}  ")
    if ruling.outcome not in (Outcome.BROKEN, Outcome.WARNING):
        return
    for sample in ruling.samples:
        yield from wrapped_lines(f"{sample.where}: {sample.text}", f"{indent}    ", f"{indent}    ")
    if rule.quote and ruling.outcome is Outcome.BROKEN:
        yield from wrapped_lines(f"“{rule.quote}” ({rule.origin})", f"{indent}  ", f"{indent}  ")
    if ruling.remedy:
        yield from wrapped_lines(ruling.remedy, f"{indent}→ ", f"{indent}  ")


def _measure_line(measures: "Measures") -> str:
    speed = f"{measures.records_per_second:,.0f} records/s, {size_text(round(measures.bytes_per_second))}/s"
    memory = f", at most {size_text(measures.peak_memory_bytes)} of memory" if measures.peak_memory_bytes else ""
    return (
        f"{counted(measures.records, 'record')} at {speed}, first output after {measures.silent_seconds:.1f} s{memory}"
    )


def _summary(certificate: "Certificate") -> str:
    from dagster_airbyte_proto.certification.rule import Outcome

    counts = certificate.counts
    broken = f"{counted(counts[Outcome.BROKEN], 'rule')} broken" if certificate.is_broken else "no rule is broken"
    others = [f"{counts[Outcome(each)]} {words}" for each, words in _OTHERS.items() if counts[Outcome(each)]]
    return (
        f"{', '.join([broken, *others])}, {counted(counts[Outcome.HOLDS], 'rule')} held in {certificate.seconds:.0f} s"
    )


_OTHERS = {"warning": "to look at", "cannot tell": "that nobody can tell"}
