"""The rules of Airbyte's protocol for sources."""

from dagster_airbyte_proto.certification.rule import Rule
from dagster_airbyte_proto.certification.rules import check_rules, discover_rules, secret_rules, spec_rules

_SPECIFICATION = "Airbyte specification"
_PROTOCOL = "Airbyte protocol"

AIRBYTE_RULES = (
    Rule(
        "spec_answered",
        "spec",
        "`spec` is answered, in time and without a config.",
        "The `spec` command allows an actor to broadcast information about itself and how it can be configured.",
        f"{_PROTOCOL}, Spec",
        spec_rules.spec_is_answered,
        "Write one SPEC message to stdout and end.",
    ),
    Rule(
        "spec_valid",
        "spec",
        "`connectionSpecification` is a valid JSON schema of an object.",
        "The `connectionSpecification` of the `ConnectorSpecification` must be valid JsonSchema.",
        f"{_SPECIFICATION}, Source",
        spec_rules.spec_is_a_schema,
        "Validate the spec against JSON Schema draft 7.",
    ),
    Rule(
        "spec_secrets_marked",
        "spec",
        "Properties that hold secrets are marked `airbyte_secret`, so that hosts can mask them.",
        "",
        "Airbyte's connector specification reference",
        spec_rules.secrets_are_marked,
        "Add `airbyte_secret: true` to each of them.",
    ),
    Rule(
        "check_succeeds",
        "check",
        "`check` succeeds on a config that works.",
        "If it can, it will return a success response.",
        f"{_PROTOCOL}, Check",
        check_rules.check_succeeds,
        "Is the connection's config right? If it is, mend the connector's check.",
    ),
    Rule(
        "check_refuses",
        "check",
        "`check` fails on a bad config, with a verdict and not with a crash.",
        "If it fails (perhaps the password is incorrect), it will return a failed response and (when possible) a "
        "helpful error message.",
        f"{_PROTOCOL}, Check",
        check_rules.check_refuses_bad_configs,
        "Validate the config against the spec before the check, and return FAILED with a message.",
    ),
    Rule(
        "check_ends",
        "check",
        "`check` ends in time on a bad config too.",
        "More robust verification is preferred but going to deep can create undesired performance tradeoffs",
        f"{_PROTOCOL}, AirbyteConnectionStatus",
        check_rules.check_ends,
        "Set timeouts on what the check connects to, and limit its retries.",
    ),
    Rule(
        "discover_answered",
        "discover",
        "`discover` answers with a catalog of at least one stream.",
        "The `discover` method detects and describes the structure of the data in the data store and which Airbyte "
        "configurations can be applied to that data.",
        f"{_PROTOCOL}, Discover",
        discover_rules.discover_is_answered,
        "Write one CATALOG message to stdout and end.",
    ),
    Rule(
        "discover_stable",
        "discover",
        "Two discovers of an unchanged source agree.",
        "After a source produces an `AirbyteCatalog` or `AirbyteStream`, they should be treated as read only.",
        f"{_PROTOCOL}, Catalog",
        discover_rules.discover_is_stable,
        "Sort what comes from sets and maps, and infer schemas from more than a sample that changes.",
    ),
    Rule(
        "discover_valid",
        "discover",
        "Each stream is there once, with a valid schema that declares its primary key and cursor.",
        "The `json_schema` field accepts any valid JsonSchema and describes the structure of a stream.",
        f"{_PROTOCOL}, Catalog",
        discover_rules.catalog_is_valid,
        "Mend the schemas of these streams.",
    ),
    Rule(
        "secrets_not_written",
        "security",
        "No secret of the config is in records, logs or errors.",
        "STDERR should only be used for log messages (for errors). All other Data Channel Data moves on STDIN and "
        "STDOUT.",
        f"{_PROTOCOL}, Actor interface",
        secret_rules.secrets_are_not_written,
        "Mask secrets before you log requests, URLs and configs.",
    ),
)
