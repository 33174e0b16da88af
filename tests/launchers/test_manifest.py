"""Manifests read and handed over, with the interpreter faked. `tests/connectors/test_manifests.py` has the real one."""

import json
from pathlib import Path
from typing import Any

import pytest

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.launchers.packages.manifest_launcher import Interpreter, ManifestLauncher
from dagster_airbyte_proto.protocols.conversation import FileArgument, Invocation
from tests.conformance.launcher import read_all, report_of
from tests.support.low_code import MANIFEST

_CUSTOM = """\
definitions:
  auth: &auth {type: CustomAuthenticator, class_name: source_declarative_manifest.components.Login}
  hidden: {class_name: {$ref: "#/definitions/name"}}
  untyped: {$parameters: {class_name: os.system}}
  dynamic: {field_path: [retriever, class_name]}
  again: *auth
"""


def _launcher(folder: Path, text: str = MANIFEST, **options: Any) -> ManifestLauncher:
    path = folder / "api.yaml"
    path.write_text(text)
    return ManifestLauncher(path, Interpreter("1.0"), cache=folder / "environments", **options)


def _refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as refused:
        _launcher(folder, text).identity()
    return str(refused.value).replace(str(folder), "")


def _handed(launcher: ManifestLauncher, config: bytes) -> list[str]:
    file = FileArgument("config.json")
    said = launcher.launch(Invocation(("folder", file, "--config", file), {file.name: config}), environment={})
    return read_all(said).decode().split("\n", 3)


def test_its_spec_is_told_with_nothing_started_or_installed(tmp_path: Path) -> None:
    launcher = _launcher(tmp_path)
    connector = launcher.launch(Invocation(("spec",)), environment={})
    (line,) = read_all(connector).splitlines()
    spec = json.loads(line)["spec"]
    assert report_of(connector).ended_cleanly
    assert spec["documentationUrl"] == "https://example.com/docs"
    assert spec["connectionSpecification"]["properties"]["client_secret"] == {"type": "string", "airbyte_secret": True}
    assert not (tmp_path / "environments").exists()


def test_a_spec_may_refer_to_other_parts(tmp_path: Path) -> None:
    text = MANIFEST.replace("\nspec:\n", "\nschemas:\n") + "    title: Ours\n"
    text += "spec: {type: Spec, connection_specification: {$ref: '#/schemas/connection_specification'}}\n"
    connector = _launcher(tmp_path, text).launch(Invocation(("spec",)), environment={})
    assert json.loads(read_all(connector))["spec"]["connectionSpecification"]["title"] == "Ours"


def test_another_content_is_another_connector(tmp_path: Path) -> None:
    before = _launcher(tmp_path).identity()
    assert before == _launcher(tmp_path).identity()
    assert before.startswith("api-")
    after = [
        _launcher(tmp_path, MANIFEST + "# more\n").identity(),
        ManifestLauncher(tmp_path / "api.yaml", Interpreter("1.1"), cache=tmp_path).identity(),
        _launcher(tmp_path, custom_components=True).identity(),
    ]
    (tmp_path / "components.py").write_text("import this\n")
    after.append(_launcher(tmp_path, custom_components=True).identity())
    assert len({before, *after}) == 5


@pytest.mark.usefixtures("wheels")
class TestHandingOver:
    def test_the_manifest_is_in_the_config_and_nowhere_else(self, tmp_path: Path) -> None:
        *_, config = _handed(_launcher(tmp_path), b'{"url": "here"}')
        handed = json.loads(config)
        manifest = handed.pop("__injected_declarative_manifest")
        assert handed == {"url": "here"}
        assert [stream["name"] for stream in manifest["streams"]] == ["users", "cities"]
        assert manifest["streams"][1]["retriever"]["type"] == "SimpleRetriever"

    def test_code_goes_with_it_where_it_is_allowed(self, tmp_path: Path) -> None:
        (tmp_path / "components.py").write_text("class Login: ...\n")
        launcher = _launcher(tmp_path, MANIFEST.replace("definitions:\n", _CUSTOM), custom_components=True)
        *_, config = _handed(launcher, b"{}")
        assert json.loads(config)["__injected_components_py"] == "class Login: ...\n"
        assert list(json.loads(config)["__injected_components_py_checksums"]) == ["sha256"]

    @pytest.mark.parametrize("key", ["__injected_declarative_manifest", "__injected_components_py"])
    def test_a_config_may_not_bring_another(self, tmp_path: Path, key: str) -> None:
        with pytest.raises(ConfigError, match=f"it has {key}, which is reserved for the manifest"):
            _handed(_launcher(tmp_path), json.dumps({key: "x"}).encode())


def test_every_place_that_names_code_is_told(tmp_path: Path) -> None:
    message = _refusal(tmp_path, MANIFEST.replace("definitions:\n", _CUSTOM))
    assert message.splitlines()[:-1] == [
        "manifest /api.yaml: 4 faults",
        "  line 5, definitions.auth: is a CustomAuthenticator of class source_declarative_manifest.components.Login",
        "  line 6, definitions.hidden: is a component of class what it refers to",
        "  line 7, definitions.untyped.$parameters: is a component of class os.system",
        "  line 8, definitions.dynamic.field_path: writes a class_name",
    ]
    assert "write `custom_components: true` beside `path`" in message.splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ": is empty"),
        ("- a", ": must be a mapping of keys to values; found a list"),
        ("a: [", ": line 1: is not YAML"),
        ("a: !!python/object:os.x {}", ": line 1: is not YAML: could not determine a constructor for the tag"),
        ("a: \x00", ": is not YAML: it holds characters that YAML does not allow"),
        ("a: &a [*a]", ": is nested too deeply, or holds itself by an alias"),
        ("a: 2024-02-30", ": holds a value that is to be in quotes: day "),
        (f"a: {'[' * 5000}", ": is nested too deeply, or holds itself by an alias"),
        (MANIFEST.replace("DeclarativeSource", "Source"), ": line 2, type: must be DeclarativeSource"),
        (MANIFEST.replace("\nstreams:", "\nothers:"), ": streams: is missing, and so is dynamic_streams"),
        (MANIFEST.replace("\nspec:", "\nspecs:"), ": spec: is missing: its config schema must be known"),
        (
            MANIFEST.replace("  connection_specification:", "  specification:"),
            ": line 64, spec.connection_specification: is missing",
        ),
        (
            MANIFEST.replace("\nspec:", "\nspec: {$ref: '#/nothing'}\nspecs:"),
            ": line 64, spec: refers to #/nothing, which does not exist",
        ),
        (MANIFEST.replace("\nspec:", "\nspec: {$ref: '#/spec'}\nspecs:"), "refers to #/spec within itself"),
    ],
)
def test_a_broken_one_is_told_what_and_where(tmp_path: Path, text: str, told: str) -> None:
    message = _refusal(tmp_path, text)
    assert message.startswith("manifest /api.yaml: ")
    assert told in message


def test_all_that_is_missing_is_told_at_once_and_so_is_a_missing_file(tmp_path: Path) -> None:
    message = _refusal(tmp_path, "name: not a manifest")
    assert "5 faults" in message
    assert all(f"\n  {key}: is missing" in message for key in ("type", "version", "check", "streams", "spec"))
    with pytest.raises(ConfigError, match=r"(?s)there is no such file.*starts at the connection file's folder"):
        ManifestLauncher(tmp_path / "none.yaml", cache=tmp_path).identity()


def test_a_manifest_whose_aliases_or_references_double_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    aliases = "bomb:\n  a0: &a0 [x]\n" + "".join(
        f"  a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 13)
    )
    assert "has more than 1000000 values, once its aliases are written out" in _refusal(tmp_path, MANIFEST + aliases)
    references = "bomb:\n  a0: {x: 1}\n" + "".join(
        f"  a{level}: {{x: {{$ref: '#/bomb/a{level - 1}'}}, y: {{$ref: '#/bomb/a{level - 1}'}}}}\n"
        for level in range(1, 41)
    )
    text = MANIFEST.replace("\nspec:\n", "\nschemas:\n") + references
    text += "spec: {type: Spec, connection_specification: {$ref: '#/bomb/a40'}}\n"
    assert "has more than 1000000 values, once its references are written out" in _refusal(tmp_path, text)
    merged = "bomb:\n  a0: &a0 {x: 1}\n" + "".join(
        f"  a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 10)}]}}\n" for level in range(1, 13)
    )
    assert "has more than 1000000 values" in _refusal(tmp_path, MANIFEST + merged)
