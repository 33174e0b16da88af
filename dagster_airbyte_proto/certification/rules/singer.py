"""The rules of Singer's specification for taps, and of what taps have taken up since."""

from dagster_airbyte_proto.certification.rule import Rule
from dagster_airbyte_proto.certification.rules import check_rules, discover_rules, secret_rules, spec_rules

_SPECIFICATION = "Singer specification 0.3.0"
_SDK = "Meltano's Singer SDK"

SINGER_RULES = (
    Rule(
        "about_answered",
        "spec",
        "`--about --format=json` or `--help` says which flags the tap takes.",
        "tap --config CONFIG [--state STATE] [--catalog CATALOG]",
        f"{_SPECIFICATION}, Synopsis",
        spec_rules.spec_is_answered,
        "Name the flags in the usage text, or build the tap on the SDK.",
    ),
    Rule(
        "about_valid",
        "spec",
        "The settings in `--about` are a valid JSON schema of an object.",
        "it must be JSON-encoded and the root of the configuration must be an object.",
        f"{_SPECIFICATION}, Config",
        spec_rules.spec_is_a_schema,
        "Validate `config_jsonschema` against JSON Schema draft 7.",
    ),
    Rule(
        "about_secrets_marked",
        "spec",
        "Settings that hold secrets are marked `secret`, so that hosts can mask them.",
        "",
        _SDK,
        spec_rules.secrets_are_marked,
        "Add `secret=True` to each of them.",
    ),
    Rule(
        "check_succeeds",
        "check",
        "`--test`, or a discovery where there is none, succeeds on a config that works.",
        "A streamer exits with a zero exit code on success, non-zero on failure.",
        f"{_SPECIFICATION}, Output",
        check_rules.check_succeeds,
        "Is the connection's config right? If it is, mend what the tap does before its first record.",
    ),
    Rule(
        "check_refuses",
        "check",
        "The same fails on a bad config.",
        "A streamer exits with a zero exit code on success, non-zero on failure.",
        f"{_SPECIFICATION}, Output",
        check_rules.check_refuses_bad_configs,
        "Validate the config before anything else, and end with an exit code other than 0.",
    ),
    Rule(
        "check_ends",
        "check",
        "The same ends in time on a bad config.",
        "A streamer exits with a zero exit code on success, non-zero on failure.",
        f"{_SPECIFICATION}, Output",
        check_rules.check_ends,
        "Set timeouts on what the tap connects to, and limit its retries.",
    ),
    Rule(
        "discover_answered",
        "discover",
        "`--discover` prints a catalog of at least one stream.",
        "The catalog is a JSON encoded file that lists the available streams and their schemas.",
        f"{_SPECIFICATION}, Catalog",
        discover_rules.discover_is_answered,
        "Print one JSON object with `streams` to stdout and end.",
    ),
    Rule(
        "discover_stable",
        "discover",
        "Two discoveries of an unchanged source agree.",
        "The catalog is a JSON encoded file that lists the available streams and their schemas.",
        f"{_SPECIFICATION}, Catalog",
        discover_rules.discover_is_stable,
        "Sort what comes from sets and maps, and infer schemas from more than a sample that changes.",
    ),
    Rule(
        "discover_valid",
        "discover",
        "Each stream is there once, with a valid schema that declares its keys and its replication key.",
        'The top level is an object, with a single key called "streams" that points to an array of stream objects.',
        f"{_SPECIFICATION}, Catalog",
        discover_rules.catalog_is_valid,
        "Mend the schemas of these streams.",
    ),
    Rule(
        "secrets_not_written",
        "security",
        "No secret of the config is in records, logs or errors.",
        "Logs and other information can be emitted to stderr for aiding debugging.",
        f"{_SPECIFICATION}, Output",
        secret_rules.secrets_are_not_written,
        "Mask secrets before you log requests, URLs and configs.",
    ),
)
