"""The rules of Rapidbyte's protocol that components of every role share, and the words of it that their rules quote."""

from typing import Any

from dagster_airbyte_proto.certification.rule import Rule
from dagster_airbyte_proto.certification.rules import check_rules, spec_rules

PROTOCOL = "Rapidbyte Connector Protocol (v4)"
HOST = "what this host does with a config"
CURSORS = (
    "Host stores source and destination checkpoint envelopes and advances persisted cursors only after correlating "
    "source+destination confirmation for a stream."
)


def config_rules(role: str) -> tuple[Rule[Any], ...]:
    """Returns the rules on the config schema and on checks, for a role as the protocol's headings write it."""
    return (
        Rule(
            "spec_valid",
            "spec",
            "The config schema is a valid JSON schema of an object.",
            "`config-json` is connector config serialized as JSON.",
            f"{PROTOCOL}, Connector Lifecycle",
            spec_rules.spec_is_a_schema,
            "Validate `config_schema` against JSON Schema draft 7.",
        ),
        Rule(
            "spec_secrets_marked",
            "spec",
            "Properties that hold secrets are marked `airbyte_secret`, so that this host can mask them.",
            "",
            HOST,
            spec_rules.secrets_are_marked,
            "Add `airbyte_secret: true` to each of them.",
        ),
        Rule(
            "check_succeeds",
            "check",
            "`open` and `validate` succeed on a config that works.",
            "optional `validate()`",
            f"{PROTOCOL}, {role}",
            check_rules.check_succeeds,
            "Is the connection's config right? If it is, mend the component's `open` or `validate`.",
        ),
        Rule(
            "check_refuses",
            "check",
            "A bad config is refused: by the config schema, or by an error of `open` or the verdict of `validate`.",
            "Returns structured `connector-error` records on failure",
            f"{PROTOCOL}, Building Connectors",
            check_rules.schema_or_check_refuses_bad_configs,
            "Return an error of the category `config` from `open`.",
        ),
        Rule(
            "check_ends",
            "check",
            "They end in time on a bad config too.",
            "",
            "limits.timeout_seconds of the manifest",
            check_rules.check_ends,
            "Limit the retries of what `validate` connects to.",
        ),
    )
