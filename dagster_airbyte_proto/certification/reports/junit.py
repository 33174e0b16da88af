"""A certificate as JUnit XML, which every CI shows: a suite for each subject, a case for each rule."""

import re
from itertools import groupby
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from dagster_airbyte_proto.certification.certificate import Certificate
from dagster_airbyte_proto.certification.rule import JudgedRule, Outcome

# XML has no way to write these, not even escaped.
_NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SKIPPED = (Outcome.CANNOT_TELL, Outcome.DOES_NOT_APPLY)


def junit_xml(certificate: Certificate) -> bytes:
    """The certificate as a document. Broken rules are failures; what cannot be told or does not apply is skipped."""
    suites = Element("testsuites", name=f"certify {certificate.connection}", time=f"{certificate.seconds:.1f}")
    _count(suites, certificate.rules)
    for subject, found in groupby(certificate.rules, lambda each: each.rule.subject):
        rules = tuple(found)
        suite = SubElement(suites, "testsuite", name=f"{certificate.connection}.{subject}")
        _count(suite, rules)
        for each in rules:
            _add_case(suite, each)
    indent(suites)
    document: bytes = tostring(suites, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _count(element: Element, rules: tuple[JudgedRule, ...]) -> None:
    outcomes = [each.ruling.outcome for each in rules]
    element.set("tests", str(len(outcomes)))
    element.set("failures", str(outcomes.count(Outcome.BROKEN)))
    element.set("errors", "0")
    element.set("skipped", str(sum(outcome in _SKIPPED for outcome in outcomes)))


def _add_case(suite: Element, each: JudgedRule) -> None:
    rule, ruling = each
    case = SubElement(suite, "testcase", classname=suite.get("name", ""), name=rule.name)
    if ruling.outcome is Outcome.BROKEN:
        SubElement(case, "failure", message=_text(ruling.met), type=rule.name).text = _text(explanation(each))
    elif ruling.outcome in _SKIPPED:
        SubElement(case, "skipped", message=_text(f"{ruling.outcome}: {ruling.met}"))
    else:
        SubElement(case, "system-out").text = _text(explanation(each))


def explanation(each: JudgedRule) -> str:
    """All of a ruling as lines of text."""
    rule, ruling = each
    lines = [f"demanded: {rule.demand}"]
    if rule.quote:
        lines.append(f'"{rule.quote}" ({rule.origin})')
    lines.append(f"met: {ruling.met}")
    lines += [f"  {sample.where}: {sample.text}" for sample in ruling.samples]
    if ruling.remedy:
        lines.append(f"to do: {ruling.remedy}")
    return "\n".join(lines)


def _text(text: str) -> str:
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
