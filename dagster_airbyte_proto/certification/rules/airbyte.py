"""The rules of Airbyte's protocol for sources."""

from dagster_airbyte_proto.certification.evidence import Evidence, SourceEvidence
from dagster_airbyte_proto.certification.rule import Rule
from dagster_airbyte_proto.certification.rules import (
    check_rules,
    discover_rules,
    read_rules,
    secret_rules,
    spec_rules,
    state_rules,
)

_SPECIFICATION = "Airbyte specification"
_PROTOCOL = "Airbyte protocol"
_STATUSES = "Airbyte protocol, as it is today: AirbyteStreamStatusTraceMessage"
_STATS = "Airbyte protocol, as it is today: AirbyteStateStats"
_HOST = "what hosts do to cancel a sync"

SHORT_RULES: tuple[Rule[Evidence], ...] = (
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
)
"""The rules on the requests that destinations are sent too."""

AIRBYTE_RULES: tuple[Rule[SourceEvidence], ...] = (
    *SHORT_RULES,
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
        "read_ends",
        "read",
        "`read` ends by itself, with exit code 0 and without an error.",
        "`read` extracts data from the underlying data store and emits it as `AirbyteRecordMessage`s.",
        f"{_PROTOCOL}, Read",
        read_rules.read_ends,
        "Look at the samples and the connector's log.",
    ),
    Rule(
        "read_messages",
        "read",
        "Every line of stdout is a message that can be read.",
        "Each message must be on its own line. Multiple messages cannot be sent on the same line.",
        f"{_PROTOCOL}, Actor interface",
        read_rules.lines_are_messages,
        "Send each message with all that its type requires.",
    ),
    Rule(
        "read_streams",
        "read",
        "Records are of the streams that were requested.",
        "When the source runs, it never looks for the data in the store related to that stream and thus "
        "does not emit it.",
        f"{_PROTOCOL}, Schema mismatches",
        read_rules.records_are_declared,
        "Send no stream that is not in the configured catalog, under the name that it has there.",
    ),
    Rule(
        "read_types",
        "read",
        "Each record fits the schema of its stream: types, required properties, dates and times.",
        "The `json_schema` field accepts any valid JsonSchema and describes the structure of a stream.",
        f"{_PROTOCOL}, Catalog",
        read_rules.records_fit_their_schema,
        "Declare what the source sends (null too), or convert it.",
    ),
    Rule(
        "read_keys",
        "read",
        "Each record has its primary key.",
        "The `data` contains the record data and must always be populated.",
        f"{_PROTOCOL}, AirbyteRecordMessage",
        read_rules.keys_are_there,
        "Declare a primary key that every record has.",
    ),
    Rule(
        "read_statuses",
        "read",
        "Each stream reports COMPLETE, if the connector sends statuses; one that does not, fails the read.",
        "",
        _STATUSES,
        read_rules.streams_are_complete,
        "Send COMPLETE at the end of each stream, and exit with a code other than 0 if one is INCOMPLETE.",
    ),
    Rule(
        "states_come",
        "states",
        "Streams that are read incrementally have states.",
        "The state message enables the Source to emit checkpoints while replicating data.",
        f"{_PROTOCOL}, AirbyteStateMessage",
        state_rules.states_come,
        "Send a state after the last record of each stream, and in between if the stream is large.",
    ),
    Rule(
        "states_count",
        "states",
        "`sourceStats.recordCount` is the number of records since the state before.",
        "",
        _STATS,
        state_rules.states_count_their_records,
        "Count what is sent, and begin again at each state.",
    ),
    Rule(
        "state_resumes",
        "states",
        "A read that resumes from a state in the middle brings all records behind it, and no others beyond "
        "the boundary.",
        "These checkpoints mean that if replication fails before completion, the next sync is able to start "
        "from the last checkpoint instead of returning to the beginning of the previous sync.",
        f"{_PROTOCOL}, AirbyteStateMessage",
        state_rules.read_resumes,
        "Save in each state the cursor of the last record that was sent before it, and read on from there.",
    ),
    Rule(
        "last_state_resumes",
        "states",
        "A read that resumes from the last state brings nothing again beyond the boundary.",
        "The goal is that given wherever a sync stops (whether this is due to all data available at the "
        "time being replicated or due to a failure), the next time the Source attempts to extract data it "
        "can pick up where it left off and not have to go back to the beginning.",
        f"{_PROTOCOL}, State & Checkpointing",
        state_rules.read_resumes_at_the_end,
        "Save in each state the cursor of the last record that was sent before it, and read on from there.",
    ),
    Rule(
        "cancel_ends",
        "cancelling",
        "A read ends on SIGTERM.",
        "",
        _HOST,
        state_rules.cancelled_read_ends,
        "Leave SIGTERM its default, or end from its handler.",
    ),
    Rule(
        "cancel_resumes",
        "cancelling",
        "A read that was cancelled goes on from its last state, without loss or repeat beyond the boundary.",
        "The goal is that given wherever a sync stops (whether this is due to all data available at the "
        "time being replicated or due to a failure), the next time the Source attempts to extract data it "
        "can pick up where it left off and not have to go back to the beginning.",
        f"{_PROTOCOL}, State & Checkpointing",
        state_rules.cancelled_read_resumes,
        "Save in each state the cursor of the last record that was sent before it, and read on from there.",
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
