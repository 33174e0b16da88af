"""`import` of a project that is broken somewhere: the rest is imported, and each error says where and what to do."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.cli.conftest import Place


def _written(place: Place, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = place.folder / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


_CRM = "package: {type: npm, package: '@acme/crm@1.0.0'}\ncredentials: {apiKey: '{{env.CRM_KEY}}'}\n"
_CONTACTS = {
    "models/users.sql": "select id from users",
    "connections/crm.yaml": _CRM,
    "syncs/contacts.yml": "{model: users, destination: crm, stream: contacts}",
}
_ORDERS = "{model: orders, destination: crm, stream: orders}"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"orders.yml": _ORDERS}, ["importing sync orders: there is no model orders", "Known: users."]),
        (
            {"orders.yml": _ORDERS, "../models/of_orders.yaml": "id: orders\nquery: ["},
            ["there is no model orders", "may be in a file that cannot be read:", "models/of_orders.yaml: line 2"],
        ),
        ({"orders.yml": "{model: [users"}, ["Syncmaven project project/syncs/orders.yml: line 1", "is not YAML"]),
        ({"orders.json": "{"}, ["reading project/syncs/orders.json: "]),
        ({"orders.yml": "- users"}, ["orders.yml: must be a mapping of keys to values; found a list"]),
        (
            {"orders.yml": "{model: users, destination: {package: {type: pip}}}"},
            ["its package is neither an image nor one of npm (type pip)", "A package is {type: docker, image: …}"],
        ),
        (
            {"orders.yml": "{model: users, destination: crm, enrichments: 5}"},
            ["its enrichments are no list", "Write them as [one, two]."],
        ),
        ({"--.yml": "{model: users, destination: crm}"}, ["naming the connection: '--' has no letter or digit"]),
    ],
)
def test_a_broken_sync_of_syncmaven_leaves_the_others_alone(
    place: Place, files: Mapping[str, str], found: list[str]
) -> None:
    _written(place, {**_CONTACTS, **{f"syncs/{name}": text for name, text in files.items()}})
    result = place.run("import", "project", "--into", "made")
    assert (result.code, [path.name for path in (place.folder / "made").iterdir()]) == (1, ["contacts.yaml"])
    [name] = [name for name in files if "/" not in name]
    sync = name.partition(".")[0]
    assert result.out.startswith("contacts -> made/contacts.yaml\n")
    assert f"\nerror: the sync {sync} (project/syncs/{name}) is not imported: " in result.out
    assert all(text in result.out for text in found), result.out
    assert result.out.endswith("--force overwrites the files that are there.\n")
    answer = place.json("import", "project", "--into", "made", "--force", code=1)
    assert [each["sync"] for each in answer["connections"]] == ["contacts"]
    [error] = answer["errors"]
    assert (error["sync"], error["file"], error["error"]["kind"]) == (sync, f"project/syncs/{name}", "ConfigError")


def test_where_no_sync_can_be_imported_the_exit_code_is_that_of_a_wrong_file(place: Place) -> None:
    _written(place, {**_CONTACTS, "connections/crm.yaml": "package: ["})
    answer = place.json("import", "project", code=2)
    assert (answer["connections"], [each["sync"] for each in answer["errors"]]) == ([], ["contacts"])
    assert "connections/crm.yaml" in answer["errors"][0]["error"]["remedy"]
    assert [path.name for path in place.folder.glob("*.yaml")] == ["airbyte-proto.yaml"]


def test_a_model_that_cannot_be_read_and_that_no_sync_names_is_no_error(place: Place) -> None:
    _written(place, {**_CONTACTS, "models/draft.yaml": "query: ["})
    assert place.json("import", "project")["errors"] == []


def _meltano(**plugins: list[Any]) -> dict[str, str]:
    return {"meltano.yml": json.dumps({"plugins": plugins})}


def test_a_broken_tap_of_meltano_leaves_the_others_alone(place: Place) -> None:
    heirs = [{"name": "tap-a", "inherit_from": "tap-b"}, {"name": "tap-b", "inherit_from": "tap-a"}]
    taps = [*heirs, {"name": "tap-x"}, {"name": "tap-%"}, {"name": "tap-shop"}]
    locks = {"extractors/tap-x--acme": "{", "loaders/target-x": "[]", "utilities/dbt": "["}
    _written(place, _meltano(extractors=taps, loaders=[{"name": "target-x"}, {"name": "target-y"}]))
    _written(place, {f"plugins/{name}.lock": text for name, text in locks.items()})
    result = place.run("import", "project", "--into", "made")
    assert (result.code, [path.name for path in (place.folder / "made").iterdir()]) == (1, ["shop.yaml"])
    assert "tap-shop -> made/shop.yaml\n" in result.out
    for name, found in {
        "tap-a": "reading plugin tap-a: it inherits from itself\n  Correct its inherit_from.",
        "tap-b": "reading plugin tap-b: it inherits from itself\n  Correct its inherit_from.",
        "tap-x": "reading project/plugins/extractors/tap-x--acme.lock: it is not JSON: ",
        "tap-%": "naming the connection: 'tap-%' has no letter or digit",
    }.items():
        assert f"\nerror: the tap {name} is not imported: {found}" in result.out
    assert "`meltano lock --update NAME`" in result.out
    assert result.out.endswith("--force overwrites the files that are there.\n")
    assert place.json("import", "project", "--into", "made", "--tap", "tap-shop", "--force")["errors"] == []
    [error] = place.json("import", "project", "--tap", "tap-x", code=2)["errors"]
    assert (error["tap"], error["file"], "is not JSON" in error["error"]["found"]) == ("tap-x", None, True)
    # A loader is that of all taps.
    refused = place.run("import", "project", "--loader", "target-x")
    assert (refused.code, "target-x.lock: it is no definition of a plugin" in refused.err) == (2, True)
    assert place.run("import", "project", "--loader", "target-y", "--tap", "tap-shop").code == 0


def test_a_state_that_cannot_be_saved_leaves_the_other_taps_alone(place: Place) -> None:
    _written(place, _meltano(extractors=[{"name": "tap-empty", "select": ["!users.*"]}, {"name": "tap-shop"}]))
    _written(place, {"state.json": '{"singer_state": {"bookmarks": {"users": {"next": 3}}}}'})
    states = [word for tap in ("tap-empty", "tap-shop") for word in ("--state", f"{tap}=project/state.json")]
    answer = place.json("import", "project", *states, code=1)
    assert [(each["tap"], each["has_state"]) for each in answer["connections"]] == [
        ("tap-empty", False),
        ("tap-shop", True),
    ]
    assert [each["tap"] for each in answer["errors"]] == ["tap-empty"]
    shown = place.run("import", "project", *states, "--force").out
    assert "\nerror: the tap tap-empty has no state: " in shown and "tap-shop -> shop.yaml, with its state\n" in shown
