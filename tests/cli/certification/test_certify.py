"""`certify` on a terminal, in files and as a recording."""

import json
import re
from xml.etree import ElementTree

import yaml

from tests.certification.conftest import SECRET, faulty_connection
from tests.cli.conftest import USERS, Place


def connect(place: Place, protocol: str, *faults: str) -> str:
    file = place.folder / "shop.yaml"
    file.write_text(yaml.safe_dump(faulty_connection(protocol, *faults)))
    return file.name


def test_a_record_that_cannot_be_read_ends_no_certification(place: Place) -> None:
    start = '{"type":"RECORD","record":{"stream":"users","emitted_at":1,"data":'
    lines = [start + data + "}}" for data in ('{"id": tru}', '{"id": ' + "[" * 3000 + "]" * 3000 + "}")]
    certificate = place.json("certify", place.connect({**USERS, "lines": lines}), code=1)
    rules = {each["rule"]: each for each in certificate["rules"]}
    assert (rules["read_messages"]["outcome"], rules["read_messages"]["met"]) == ("broken", "2 messages cannot be read")
    assert rules["state_resumes"]["outcome"] == "holds"


def test_a_bound_of_no_time_is_refused(place: Place) -> None:
    for option in ("--query-seconds", "--read-seconds", "--write-seconds"):
        refused = place.run("certify", connect(place, "airbyte"), option, "0")
        assert (refused.code, f"Invalid value for '{option}'" in refused.err) == (2, True)


def test_a_broken_rule_is_exit_code_1_with_everything_an_author_needs(place: Place) -> None:
    file = connect(place, "airbyte", "accepts_all", "logs_secret")
    shown = place.run("certify", file, "--junit", "certificate.xml")
    assert shown.code == 1
    assert SECRET not in shown.out + shown.err
    assert "broken          `check` fails on a bad config" in shown.out
    assert "check without count: SUCCEEDED" in shown.out
    assert "“If it fails (perhaps the password is incorrect)" in shown.out
    assert "→ Validate the config against the spec" in shown.out
    assert "stderr: connecting with ***" in shown.out
    assert shown.out.rstrip().splitlines()[-1].startswith("2 rules broken, ")
    document = (place.folder / "certificate.xml").read_text()
    assert SECRET not in document
    cases = {case.get("name"): case for case in ElementTree.fromstring(document).iter("testcase")}
    failed = {name for name, case in cases.items() if case.find("failure") is not None}
    assert failed == {"check_refuses", "secrets_not_written"}
    failure = cases["check_refuses"].find("failure")
    assert failure is not None and failure.text is not None
    assert "demanded: `check` fails on a bad config" in failure.text
    assert "shop" not in place.run("state", "list").out


def test_the_page_is_one_file_without_scripts_for_light_and_dark(place: Place) -> None:
    result = place.run("certify", connect(place, "singer", "wrong_type", "logs_secret"), "--html", "out/page.html")
    assert result.code == 1
    page = (place.folder / "out" / "page.html").read_text()
    assert SECRET not in page
    assert not re.search(r"<script|<link|<img|@import|url\(|https?://", page)
    assert "prefers-color-scheme: dark" in page
    outcomes = re.findall(r'<details class="([a-z-]+)" id="(\w+)"( open)?>', page)
    assert ("broken", "read_types", " open") in outcomes and ("holds", "read_keys", "") in outcomes
    assert "<code>--discover</code> prints a catalog" in page
    assert "stderr" in page and "connecting with ***" in page
    assert page.count('<td class="time">') > 10  # a bar for each run


def test_a_file_that_cannot_be_written_is_the_users_error(place: Place) -> None:
    (place.folder / "file").write_text("")
    scenario = {"streams": {"users": {"records": 1, "incremental": False}}}
    result = place.run("certify", place.connect(scenario), "--html", "file/page.html")
    assert result.code == 2 and "writing file/page.html" in result.err
    assert not (place.folder / ".airbyte-proto").exists(), "the connector was not started for nothing"


def test_a_recording_of_a_certification_can_be_certified(place: Place) -> None:
    found = place.json("certify", connect(place, "airbyte"), "--record", "recording")
    assert found["status"] == "holds" and found["recording"] == "recording"
    assert {each["rule"] for each in found["rules"]} >= {"spec_valid", "check_refuses", "discover_stable"}
    assert found["counts"]["broken"] == 0
    assert all(SECRET not in each.read_text() for each in (place.folder / "recording").rglob("*") if each.is_file())
    replayed = {
        "connector": {"protocol": "airbyte", "launch": {"kind": "replay", "recording": "recording"}},
        "config": {"password": SECRET, "count": 3},
    }
    (place.folder / "replayed.yaml").write_text(json.dumps(replayed))
    rules = {each["rule"]: each for each in place.json("certify", "replayed.yaml")["rules"]}
    assert rules["discover_stable"]["outcome"] == "holds"
    assert rules["check_refuses"]["outcome"] == "cannot tell"
