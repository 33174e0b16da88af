"""Components: the connector that `init` writes breaks no rule, and a broken one breaks those that it should."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dagster_airbyte_proto import connector_kit
from dagster_airbyte_proto.certification.rule import Outcome, Ruling
from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import StreamId
from tests.certification.conftest import SECRET, Certifier, with_outcome
from tests.cli.components.test_component_syncs import CONFIG, checkpoint, ipc, rows_of
from tests.support.wasm import guests

pytestmark = pytest.mark.everyday("test_a_new_connector_breaks_no_rule", "test_what_is_broken_is_found")

_SKELETONS = Path(connector_kit.__file__).parent / "skeletons"
_RESUMING = {"state_resumes", "last_state_resumes", "cancel_resumes"}


def _connector(file: Path) -> dict[str, Any]:
    return {"protocol": "rapidbyte", "launch": {"kind": "wasm", "path": str(file)}}


def _new_connector(folder: Path) -> dict[str, Any]:
    """The connector that `init --new-connector rapidbyte --language c` writes."""
    core = guests.core_module(folder, "source", _SKELETONS / "c" / "source.c")
    manifest = json.loads((_SKELETONS / "shared" / "manifest.json").read_text().replace("{{name}}", "weather"))
    file = folder / "source.wasm"
    file.write_bytes(guests.as_component(guests.with_section(core, "rapidbyte_manifest_v1", manifest), "source"))
    return _connector(file)


def _rulings_of_script(
    certifier: Certifier, folder: Path, script: str, columns: Mapping[str, Mapping[str, Any]] = {}, **more: Any
) -> dict[str, Ruling]:
    """Those of a component that follows a script. `columns` are declared otherwise than its batches have them."""
    file = folder / "scripted.wasm"
    schema = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
    file.write_bytes(guests.connector(folder, schema=schema))
    stream = json.loads(json.dumps(CONFIG["catalog"]["streams"][0]))
    declared = [{**each, **columns.get(each["name"], {})} for each in stream["schema"]["data"]]
    stream["schema"]["data"] = [each for each in declared if each["name"]]
    config = {
        **CONFIG,
        "catalog": {"streams": [stream]},
        "script_users": script,
        "password": SECRET,
        "count": 3,
        **more,
    }
    found = certifier.rulings("rapidbyte", connector=_connector(file), config=config)
    assert SECRET not in str(found)
    return found


def test_a_new_connector_breaks_no_rule(certifier: Certifier, tmp_path: Path) -> None:
    connector = _new_connector(tmp_path)
    certificate = certifier.certify("rapidbyte", connector=connector, config={"rows": 25_000})
    rulings = {each.rule.name: each.ruling for each in certificate.rules}
    assert not certificate.is_broken, rulings
    others = {name: ruling for name, ruling in rulings.items() if ruling.outcome is not Outcome.HOLDS}
    assert set(others) == {"secrets_not_written"}, others  # It has none.
    assert rulings["states_come"].met == "3 states"
    assert ": 15,000 records, none lost, 0 again" in rulings["state_resumes"].met
    assert rulings["check_refuses"].met == "the schema refuses a config with a wrong type in rows"
    assert certificate.measures is not None and certificate.measures.records == 25_000


def test_what_is_broken_is_found(certifier: Certifier, tmp_path: Path) -> None:
    """It begins from the start each time, has other columns than it declares, and logs its password."""
    script = f"log 2 it uses {SECRET};ipc first;{checkpoint(3)};ipc second;{checkpoint(5)}"
    columns: dict[str, dict[str, Any]] = {
        "score": {"data_type": "Int64"},
        "name": {"nullable": False},
        "raw": {"name": ""},
    }
    rulings = _rulings_of_script(certifier, tmp_path, script, columns)
    assert with_outcome(rulings, Outcome.BROKEN) == {"read_types", "secrets_not_written", *_RESUMING}, rulings
    assert rulings["read_types"].met == "not as the schema says: 6 columns, in 3 ways"
    texts = {each.text for each in rulings["read_types"].samples}
    assert {text.partition(": ")[0] for text in texts} == {f"{StreamId.of('users')}"}
    assert any("score: of another type" in text for text in texts)
    assert "0 records are lost, 2 come again" in rulings["state_resumes"].met


def test_a_secret_in_a_batch_is_found(certifier: Certifier, tmp_path: Path) -> None:
    rows = [{**row, "name": SECRET} for row in rows_of(1, 2)]
    ruling = _rulings_of_script(certifier, tmp_path, f"ipc leaking;{checkpoint(2)}", leaking=ipc(rows))[
        "secrets_not_written"
    ]
    assert ruling.outcome is Outcome.BROKEN, ruling
    assert {each.text for each in ruling.samples} == {"a value of the batch is a secret of the config"}


def test_a_transform_is_refused_before_it_is_started(certifier: Certifier, tmp_path: Path) -> None:
    file = tmp_path / "mask.wasm"
    file.write_bytes(guests.connector(tmp_path, "transform", {**guests.MANIFEST, "roles": {"transform": {}}}))
    with pytest.raises(ConfigError, match=r"its manifest has the roles transform\nTransforms are not certified"):
        certifier.certify("rapidbyte", connector=_connector(file), config={})


def test_times_that_python_cannot_say_are_values_like_others(certifier: Certifier, tmp_path: Path) -> None:
    time, day = pa.timestamp("us"), pa.date32()
    of_types = {
        "plain": (time, 1 << 62),
        "listed": (pa.list_(time), [1 << 62]),
        "object": (pa.struct([("at", time), ("days", pa.large_list(day))]), {"at": 1 << 62, "days": [1 << 30]}),
        "mapped": (pa.map_(pa.string(), pa.timestamp("ns", "UTC")), [("at", 1 << 62)]),
        "viewed": (pa.list_view(time), [1 << 62]),
    }
    schema = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _) in of_types.items())])
    rows = [{"id": number, **{name: value for name, (_, value) in of_types.items()}} for number in (1, 2)]
    script = f"ipc first;{checkpoint(2)}"
    rulings = _rulings_of_script(certifier, tmp_path, script, first=ipc(rows, schema))
    assert rulings["read_ends"].outcome is Outcome.HOLDS, rulings["read_ends"]
    assert rulings["read_keys"].outcome is Outcome.HOLDS, rulings["read_keys"]


@pytest.mark.parametrize(
    ("script", "broken", "met"),
    [
        (f"ipc first;{checkpoint(3)};trap", "read_ends", "the component trapped"),
        ("ipc first;fail", "read_ends", "reported 1 error"),
        ("ipc first;ipc second", "states_come", "no state came"),
        (f"!ipc first;!{checkpoint(3)};!ipc second;!{checkpoint(5)}", "state_resumes", "2 records are lost"),
    ],
)
def test_each_fault_breaks_its_rule(certifier: Certifier, tmp_path: Path, script: str, broken: str, met: str) -> None:
    ruling = _rulings_of_script(certifier, tmp_path, script)[broken]
    assert ruling.outcome is Outcome.BROKEN, ruling
    assert met in f"{ruling.met} {ruling.samples}", ruling
