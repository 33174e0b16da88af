"""The rules of version 4 of Rapidbyte's protocol for destinations, which are WebAssembly components.

Some of the rules of other protocols have nothing to judge here: the host frames its batches, and ends the component.
"""

from dagster_airbyte_proto.certification.rule import Rule
from dagster_airbyte_proto.certification.rules import check_rules, manifest_rules, spec_rules
from dagster_airbyte_proto.certification.rules.destinations import echo_rules, host_rules, write_rules
from dagster_airbyte_proto.certification.writes.write_evidence import DestinationEvidence

_PROTOCOL = "Rapidbyte Connector Protocol (v4)"
_HOST = "what this host does with a config"
_CURSORS = (
    "Host stores source and destination checkpoint envelopes and advances persisted cursors only after correlating "
    "source+destination confirmation for a stream."
)

COMPONENT_DESTINATION_RULES: tuple[Rule[DestinationEvidence], ...] = (
    Rule(
        "manifest_fits",
        "spec",
        "The manifest has the role `destination`, and the version 4.",
        "Host validates connector manifest role compatibility before run/check/discover",
        f"{_PROTOCOL}, Manifest Compatibility",
        manifest_rules.manifest_of_destination_is_there,
        "Name `roles: {destination: {}}` and `protocol_version: 4` in the section `rapidbyte_manifest_v1`.",
    ),
    Rule(
        "spec_valid",
        "spec",
        "The config schema is a valid JSON schema of an object.",
        "`config-json` is connector config serialized as JSON.",
        f"{_PROTOCOL}, Connector Lifecycle",
        spec_rules.spec_is_a_schema,
        "Validate `config_schema` against JSON Schema draft 7.",
    ),
    Rule(
        "spec_secrets_marked",
        "spec",
        "Properties that hold secrets are marked `airbyte_secret`, so that this host can mask them.",
        "",
        _HOST,
        spec_rules.secrets_are_marked,
        "Add `airbyte_secret: true` to each of them.",
    ),
    Rule(
        "check_succeeds",
        "check",
        "`open` and `validate` succeed on a config that works.",
        "optional `validate()`",
        f"{_PROTOCOL}, Destination",
        check_rules.check_succeeds,
        "Is the connection's config right? If it is, mend the component's `open` or `validate`.",
    ),
    Rule(
        "check_refuses",
        "check",
        "A bad config is refused: by the config schema, or by an error of `open` or the verdict of `validate`.",
        "Returns structured `connector-error` records on failure",
        f"{_PROTOCOL}, Building Connectors",
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
    Rule(
        "write_ends",
        "rows",
        "`run` ends by itself after the last batch, without an error and without a trap.",
        "`run(session, request)` (one stream at a time)",
        f"{_PROTOCOL}, Destination",
        write_rules.write_ends,
        "Look at the samples and the component's log.",
    ),
    Rule(
        "empty_input_ends",
        "rows",
        "`run` without a batch ends well too.",
        "",
        _HOST,
        write_rules.empty_write_ends,
        "A stream without new rows is no error.",
    ),
    host_rules.TYPES,
    host_rules.AGAIN,
    Rule(
        "checkpoints_come",
        "checkpoints",
        "Its checkpoints and its good end prove all rows that it was sent.",
        _CURSORS,
        f"{_PROTOCOL}, Checkpoint Coordination",
        echo_rules.checkpoints_come,
    ),
    Rule(
        "checkpoints_in_order",
        "checkpoints",
        "They come in the order of the rows.",
        _CURSORS,
        f"{_PROTOCOL}, Checkpoint Coordination",
        echo_rules.states_are_in_order,
        "Count the records that are safe in `records_processed`, from the beginning of the run.",
    ),
    host_rules.SETTING,
    *host_rules.LONG,
    host_rules.SECRETS,
)
