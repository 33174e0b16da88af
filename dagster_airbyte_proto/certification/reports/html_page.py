"""A certificate as one HTML file: it loads nothing, runs no script, and follows the reader's light or dark mode."""

from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from itertools import groupby

from dagster_airbyte_proto.certification.certificate import Certificate, Measures
from dagster_airbyte_proto.certification.evidence import Step
from dagster_airbyte_proto.certification.reports.style import STYLE
from dagster_airbyte_proto.certification.rule import JudgedRule, Outcome

# The worst first.
_SYMBOLS = {
    Outcome.BROKEN: "✕",
    Outcome.WARNING: "!",
    Outcome.CANNOT_TELL: "?",
    Outcome.DOES_NOT_APPLY: "–",
    Outcome.HOLDS: "✓",
}
_OPEN = (Outcome.BROKEN, Outcome.WARNING)
_UNITS = ("B", "KiB", "MiB", "GiB")
_KIBI = 1024


def html_page(certificate: Certificate) -> str:
    """The certificate as a document."""
    title = f"{certificate.connection}: {'rules are broken' if certificate.is_broken else 'no rule is broken'}"
    return "".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f"<title>{escape(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n",
            *_header(certificate),
            *(_measures(certificate, certificate.measures) if certificate.measures else ()),
            *_subjects(certificate),
            *_steps(certificate.steps),
            f"<footer>{datetime.now(UTC):%Y-%m-%d %H:%M} UTC · {certificate.seconds:.0f} s · ",
            "<code>airbyte-proto certify</code></footer>\n</main>\n</body>\n</html>\n",
        )
    )


def _header(certificate: Certificate) -> Iterator[str]:
    counts = certificate.counts
    verdict = "broken" if certificate.is_broken else "holds"
    text = f"{counts[Outcome.BROKEN]} broken" if certificate.is_broken else "No rule is broken"
    yield f'<header class="{verdict}">\n<p class="verdict">{text}</p>\n<h1>{escape(certificate.connection)}</h1>\n'
    protocol = f"{certificate.protocol.capitalize()} {certificate.role}"
    yield f"<p>{escape(protocol)} · <code>{escape(certificate.connector)}</code></p>\n"
    if certificate.objects:
        objects = ", ".join(f"<code>{escape(each)}</code>" for each in certificate.written_to)
        yield f"<p>Certify wrote to this destination: {objects}. Nothing removes what it wrote.</p>\n"
    yield '<div class="bar" aria-hidden="true">'
    for outcome in _SYMBOLS:
        if counts[outcome]:
            yield f'<i class="{_css(outcome)}" style="flex-grow:{counts[outcome]}"></i>'
    yield '</div>\n<ul class="counts">'
    for outcome in _SYMBOLS:
        if counts[outcome]:
            yield f'<li class="{_css(outcome)}"><b>{counts[outcome]}</b> {outcome.value}</li>'
    yield "</ul>\n</header>\n"


def _measures(certificate: Certificate, measures: Measures) -> Iterator[str]:
    is_source = not certificate.is_destination
    cards = [
        (f"{measures.records_per_second:,.0f}", "records per second"),
        (f"{_size(measures.bytes_per_second)}/s", "output" if is_source else "input"),
        (f"{measures.records:,}", f"records in {measures.seconds:.1f} s"),
        (f"{measures.silent_seconds:.1f} s", "until the first output" if is_source else "to start and to end"),
    ]
    if measures.peak_memory_bytes:
        cards.append((_size(measures.peak_memory_bytes), "memory at most"))
    yield '<section class="cards">'
    for value, words in cards:
        yield f"<div><b>{escape(value)}</b><span>{escape(words)}</span></div>"
    yield "</section>\n"


def _subjects(certificate: Certificate) -> Iterator[str]:
    for subject, rules in groupby(certificate.rules, lambda each: each.rule.subject):
        yield f"<section>\n<h2>{escape(subject.capitalize())}</h2>\n"
        for each in rules:
            yield from _rule(each)
        yield "</section>\n"


def _rule(each: JudgedRule) -> Iterator[str]:
    rule, ruling = each
    css, is_open = _css(ruling.outcome), " open" if ruling.outcome in _OPEN else ""
    yield f'<details class="{css}" id="{escape(rule.name)}"{is_open}>\n<summary>'
    yield f'<span class="mark" title="{escape(ruling.outcome.value)}">{_SYMBOLS[ruling.outcome]}</span>'
    yield f"<span><b>{_marked_up(rule.demand)}</b><br>{escape(ruling.met)}</span>"
    yield f'<span class="outcome">{escape(ruling.outcome.value)}</span></summary>\n<div class="more">\n'
    if ruling.samples:
        yield "<table>"
        for sample in ruling.samples:
            yield f"<tr><th>{escape(sample.where)}</th><td><code>{escape(sample.text)}</code></td></tr>"
        yield "</table>\n"
    if ruling.remedy:
        yield f'<p class="remedy">{_marked_up(ruling.remedy)}</p>\n'
    if rule.quote:
        yield f"<blockquote>{escape(rule.quote)}<cite>{escape(rule.origin)}</cite></blockquote>\n"
    else:
        yield f"<p><cite>{escape(rule.origin)}</cite></p>\n"
    yield f"<p><code>{escape(rule.name)}</code></p>\n</div>\n</details>\n"


def _steps(steps: tuple[Step, ...]) -> Iterator[str]:
    """The runs, one after another, as bars on one scale of time."""
    total = sum(step.run.seconds for step in steps)
    if not total:
        return
    yield '<section>\n<h2>Runs of the connector</h2>\n<table class="runs">\n'
    yield "<tr><th>purpose</th><th></th><th>seconds</th><th>output</th><th>memory</th><th>end</th></tr>\n"
    begun = 0.0
    for step in steps:
        run = step.run
        left, width = 100 * begun / total, max(0.5, 100 * run.seconds / total)
        begun += run.seconds
        memory = _size(run.peak_memory_bytes) if run.peak_memory_bytes else ""
        bar = f'<i style="margin-left:{left:.1f}%;width:{min(width, 100 - left):.1f}%"></i>'
        yield f'<tr><td>{escape(step.purpose)}</td><td class="time">{bar}</td><td>{run.seconds:.1f}</td>'
        yield f"<td>{_size(run.size_bytes)}</td><td>{memory}</td><td>{escape(run.how_it_ended)}</td></tr>\n"
    yield "</table>\n</section>\n"


def _css(outcome: Outcome) -> str:
    return outcome.value.replace(" ", "-")


def _marked_up(text: str) -> str:
    """A text of ours, with what stands in backticks as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))


def _size(size_bytes: float) -> str:
    unit = 0
    while size_bytes >= _KIBI and unit < len(_UNITS) - 1:
        size_bytes, unit = size_bytes / _KIBI, unit + 1
    return f"{size_bytes:.0f} {_UNITS[unit]}" if unit == 0 else f"{size_bytes:.1f} {_UNITS[unit]}"
