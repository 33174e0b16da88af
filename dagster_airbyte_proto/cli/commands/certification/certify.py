"""`certify`. Slow modules are imported when the command runs; see call.py."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import click

from dagster_airbyte_proto.atomic_files import write_atomically
from dagster_airbyte_proto.cli.call import Call, command_in
from dagster_airbyte_proto.cli.commands.spec_check_discover import show_log_line
from dagster_airbyte_proto.cli.output import Answer, wrapped_lines
from dagster_airbyte_proto.cli.program import program
from dagster_airbyte_proto.cli.progress import size_text
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.plurals import counted

if TYPE_CHECKING:
    from dagster_airbyte_proto.certification.certificate import Certificate, Measures
    from dagster_airbyte_proto.certification.rule import JudgedRule
    from dagster_airbyte_proto.certification.watching.watched_program import Scratch
    from dagster_airbyte_proto.connection import Connection

_OUTCOME_WIDTH = len("does not apply") + 2
_FILE = click.Path(dir_okay=False, path_type=Path)
_SECONDS = click.FloatRange(min=0, min_open=True)


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
@click.option(
    "--query-seconds",
    metavar="N",
    type=_SECONDS,
    default=120.0,
    show_default=True,
    help="Limit for each short request.",
)
@click.option(
    "--read-seconds", metavar="N", type=_SECONDS, default=600.0, show_default=True, help="Limit for each read."
)
@click.option("--writes", "may_write", is_flag=True, help="Of a push: certify may write to its destination.")
@click.option(
    "--object",
    "object_name",
    metavar="NAME",
    default="airbyte_proto_certify",
    show_default=True,
    help="The object to write to. The names of two more begin with it.",
)
@click.option(
    "--scratch",
    "may_overwrite",
    is_flag=True,
    help="What the config of the destination names may be overwritten: it is there for trials.",
)
@click.option(
    "--rows",
    metavar="N",
    type=click.IntRange(min=1),
    default=20_000,
    show_default=True,
    help="Rows of the longest write.",
)
@click.option(
    "--write-seconds", metavar="N", type=_SECONDS, default=120.0, show_default=True, help="Limit for each write."
)
def certify(
    call: Call,
    connection_file: str,
    folder: Path | None,
    html_file: Path | None,
    junit_file: Path | None,
    **more: Any,
) -> Answer:
    """Tests whether a connector keeps the rules of its protocol, and resumes without loss.

    It starts the connector a dozen times: with the connection's config and with bad ones, to the end, cancelled and
    resumed. No state moves, and no table gets rows of a source. The destination of a push is written to only with
    --writes: to objects of certify's own, which stay there. Exit code 1 if a rule is broken.
    """
    from dagster_airbyte_proto.certification.certificate import certify as certify_connector
    from dagster_airbyte_proto.certification.reports.html_page import html_page
    from dagster_airbyte_proto.certification.reports.junit import junit_xml
    from dagster_airbyte_proto.certification.watching.watched_program import Bounds, Gathering, Scratch

    connection = call.open(connection_file)
    scratch = Scratch(more.pop("object_name"), more.pop("rows"), more.pop("may_overwrite"))
    _check_may_write(connection, scratch, may_write=more.pop("may_write"), folder=folder)
    on_line = partial(show_log_line, is_verbose=True) if call.is_verbose else _ignore_line
    for file in filter(None, (html_file, junit_file)):
        _check_writable(file)
    options = Gathering(Bounds(**more), folder, scratch, _show_step, on_line)
    with call.engine() as engine:
        certificate = certify_connector(engine, connection, options)
    _show_step("")
    if html_file is not None:
        _write(html_file, html_page(certificate).encode())
    if junit_file is not None:
        _write(junit_file, junit_xml(certificate))
    value = {**certificate.value, "recording": str(folder) if folder else None}
    return Answer(value, tuple(_lines(certificate)), 1 if certificate.is_broken else 0)


def _check_may_write(connection: "Connection", scratch: "Scratch", *, may_write: bool, folder: Path | None) -> None:
    """Raises ConfigError for a destination unless the user allows writes to it."""
    doing = f"certifying connection {connection.name}"
    if connection.push is None:
        if may_write:
            remedy = "Leave --writes out: a source is only read."
            raise ConfigError(doing, "--writes is for the destination of a push, and it has no `push`", remedy=remedy)
        return
    if not may_write:
        from dagster_airbyte_proto.certification.writes.destination_gathering import objects_to_write

        objects = ", ".join(objects_to_write(connection, scratch))
        raise ConfigError(
            doing,
            f"certify writes to its destination: to {objects}, and nothing removes what it writes",
            remedy="Add --writes if it may; --object NAME names other objects.",
        )
    if folder is not None:
        raise ConfigError(
            doing, "--record is for sources, and this connection has a push", remedy="Leave --record out."
        )


def _check_writable(file: Path) -> None:
    """Raises ConfigError before minutes of runs whose report could not be written."""
    with _named(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=file.parent):
            pass


def _write(file: Path, content: bytes) -> None:
    with _named(file):
        write_atomically(file, content)


@contextmanager
def _named(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"writing {file}", error.strerror or str(error), remedy="Name another file.") from error


def _ignore_line(level: str, text: str) -> None:
    """The bad configs of a certification make a connector log errors that are none."""


def _show_step(step: str) -> None:
    """Shows on a terminal what is being tried, in one line that goes away."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{f'trying: {step} …' if step else ''}", err=True, nl=False)


def _lines(certificate: "Certificate") -> Iterator[str]:
    if certificate.is_destination:
        yield f"certify wrote to the destination, to {', '.join(certificate.written_to)}: nothing removes what it wrote"
    yield f"{certificate.connection}: {certificate.protocol}, {certificate.connector}"
    for subject, rules in groupby(certificate.rules, lambda each: each.rule.subject):
        yield ""
        yield subject
        for each in rules:
            yield from _rule_lines(each)
    if certificate.measures is not None:
        yield from ("", _measure_line(certificate, certificate.measures))
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


def _measure_line(certificate: "Certificate", measures: "Measures") -> str:
    speed = f"{measures.records_per_second:,.0f} records/s, {size_text(round(measures.bytes_per_second))}/s"
    memory = f", at most {size_text(measures.peak_memory_bytes)} of memory" if measures.peak_memory_bytes else ""
    seconds = f"{measures.silent_seconds:.1f} s"
    silent = f"{seconds} to start and to end" if certificate.is_destination else f"first output after {seconds}"
    return f"{counted(measures.records, 'record')} at {speed}, {silent}{memory}"


def _summary(certificate: "Certificate") -> str:
    from dagster_airbyte_proto.certification.rule import Outcome

    counts = certificate.counts
    broken = f"{counted(counts[Outcome.BROKEN], 'rule')} broken" if certificate.is_broken else "no rule is broken"
    others = [f"{counts[Outcome(each)]} {words}" for each, words in _OTHERS.items() if counts[Outcome(each)]]
    return (
        f"{', '.join([broken, *others])}, {counted(counts[Outcome.HOLDS], 'rule')} held in {certificate.seconds:.0f} s"
    )


_OTHERS = {"warning": "to look at", "cannot tell": "that nobody can tell"}
