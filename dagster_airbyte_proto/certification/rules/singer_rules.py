"""The rules that taps and targets share, and the words of Singer's specification that their rules quote."""

from typing import Any

from dagster_airbyte_proto.certification.rule import Rule
from dagster_airbyte_proto.certification.rules import check_rules, spec_rules

SPECIFICATION = "Singer specification 0.3.0"
SDK = "Meltano's Singer SDK"
EXIT_CODES = "A streamer exits with a zero exit code on success, non-zero on failure."

SETTINGS_RULES: tuple[Rule[Any], ...] = (
    Rule(
        "about_valid",
        "spec",
        "The settings in `--about` are a valid JSON schema of an object.",
        "it must be JSON-encoded and the root of the configuration must be an object.",
        f"{SPECIFICATION}, Config",
        spec_rules.spec_is_a_schema,
        "Validate `config_jsonschema` against JSON Schema draft 7.",
    ),
    Rule(
        "about_secrets_marked",
        "spec",
        "Settings that hold secrets are marked `secret`, so that hosts can mask them.",
        "",
        SDK,
        spec_rules.secrets_are_marked,
        "Add `secret=True` to each of them.",
    ),
)


def bad_config_rules(program: str) -> tuple[Rule[Any], ...]:
    """Returns the rules on the check of a bad config, for a "tap" or a "target"."""
    return (
        Rule(
            "check_refuses",
            "check",
            "The same fails on a bad config.",
            EXIT_CODES,
            f"{SPECIFICATION}, Output",
            check_rules.check_refuses_bad_configs,
            "Validate the config before anything else, and end with an exit code other than 0.",
        ),
        Rule(
            "check_ends",
            "check",
            "The same ends in time on a bad config.",
            EXIT_CODES,
            f"{SPECIFICATION}, Output",
            check_rules.check_ends,
            f"Set timeouts on what the {program} connects to, and limit its retries.",
        ),
    )
