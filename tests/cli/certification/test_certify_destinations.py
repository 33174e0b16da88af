"""`certify` of the destination of a push: only where the user says so, and with the objects that it writes to."""

import yaml

from tests.certification.conftest import SECRET
from tests.certification.test_destinations import destination_connection
from tests.cli.conftest import Place

_OBJECTS = "scratch, scratch_types, scratch_misfit"


def _connect(place: Place, *faults: str) -> str:
    out = place.folder / "out"
    out.mkdir(exist_ok=True)
    file = place.folder / "crm.yaml"
    file.write_text(yaml.safe_dump(destination_connection(out, "singer", *faults)))
    return file.name


def test_it_writes_only_where_the_user_allows_it_and_says_where_it_wrote(place: Place) -> None:
    file = _connect(place, "never_echoes")
    refused = place.run("certify", file, "--object", "scratch")
    assert refused.code == 2 and f"certify writes to its destination: to {_OBJECTS}" in refused.err
    assert "Add --writes" in refused.err and list((place.folder / "out").iterdir()) == []
    allowed = ("--writes", "--object", "scratch", "--rows", "100", "--html", "page.html", "--junit", "junit.xml")
    shown = place.run("certify", file, *allowed)
    assert shown.code == 1
    assert (
        shown.out.splitlines()[0] == f"certify wrote to the destination, to {_OBJECTS}: nothing removes what it wrote"
    )
    assert "→ Set `acknowledge: exit` in connections to it" in shown.out
    page = (place.folder / "page.html").read_text()
    assert "Singer destination" in page
    assert "Certify wrote to this destination: <code>scratch</code>, <code>scratch_types</code>" in page
    assert 'name="states_come_back"' in (place.folder / "junit.xml").read_text()
    assert SECRET not in shown.out + shown.err + page


def test_a_fixed_name_needs_a_flag_of_its_own(place: Place) -> None:
    file = place.folder / _connect(place)
    document = yaml.safe_load(file.read_text())
    document["config"]["custom_name"] = "people"
    file.write_text(yaml.safe_dump(document))
    refused = place.run("certify", file.name, "--writes")
    assert refused.code == 2 and "names the place of all rows, whatever their stream, by custom_name" in refused.err
    assert "Certify with a config of its own" in refused.err and list((place.folder / "out").iterdir()) == []
    shown = place.run("certify", file.name, "--writes", "--scratch", "--rows", "20")
    assert "airbyte_proto_certify_misfit, what custom_name in the config names: nothing" in shown.out.splitlines()[0]


def test_options_of_destinations_and_sources_do_not_mix(place: Place) -> None:
    recorded = place.run("certify", _connect(place), "--writes", "--record", "recording")
    assert recorded.code == 2 and "--record is for sources" in recorded.err
    source = place.run("certify", place.connect({"streams": {"users": {"records": 1}}}), "--writes")
    assert source.code == 2 and "it has no `push`" in source.err
