"""The rules of Singer's specification for taps, and of what taps have taken up since."""

from dagster_airbyte_proto.certification.rule import Rule
from dagster_airbyte_proto.certification.rules import (
    check_rules,
    discover_rules,
    read_rules,
    secret_rules,
    spec_rules,
    state_rules,
)
from dagster_airbyte_proto.certification.rules.singer_rules import (
    EXIT_CODES,
    SETTINGS_RULES,
    SPECIFICATION,
    bad_config_rules,
)

_HOST = "what hosts do to cancel a sync"

SINGER_RULES = (
    Rule(
        "about_answered",
        "spec",
        "`--about --format=json` or `--help` says which flags the tap takes.",
        "tap --config CONFIG [--state STATE] [--catalog CATALOG]",
        f"{SPECIFICATION}, Synopsis",
        spec_rules.spec_is_answered,
        "Name the flags in the usage text, or build the tap on the SDK.",
    ),
    *SETTINGS_RULES,
    Rule(
        "check_succeeds",
        "check",
        "`--test`, or a discovery where there is none, succeeds on a config that works.",
        EXIT_CODES,
        f"{SPECIFICATION}, Output",
        check_rules.check_succeeds,
        "Is the connection's config right? If it is, mend what the tap does before its first record.",
    ),
    *bad_config_rules("tap"),
    Rule(
        "discover_answered",
        "discover",
        "`--discover` prints a catalog of at least one stream.",
        "The catalog is a JSON encoded file that lists the available streams and their schemas.",
        f"{SPECIFICATION}, Catalog",
        discover_rules.discover_is_answered,
        "Print one JSON object with `streams` to stdout and end.",
    ),
    Rule(
        "discover_stable",
        "discover",
        "Two discoveries of an unchanged source agree.",
        "The catalog is a JSON encoded file that lists the available streams and their schemas.",
        f"{SPECIFICATION}, Catalog",
        discover_rules.discover_is_stable,
        "Sort what comes from sets and maps, and infer schemas from more than a sample that changes.",
    ),
    Rule(
        "discover_valid",
        "discover",
        "Each stream is there once, with a valid schema that declares its keys and its replication key.",
        'The top level is an object, with a single key called "streams" that points to an array of stream objects.',
        f"{SPECIFICATION}, Catalog",
        discover_rules.catalog_is_valid,
        "Mend the schemas of these streams.",
    ),
    Rule(
        "read_ends",
        "read",
        "The tap ends by itself, with exit code 0.",
        EXIT_CODES,
        f"{SPECIFICATION}, Output",
        read_rules.read_ends,
        "Look at the samples and the tap's log.",
    ),
    Rule(
        "read_messages",
        "read",
        "Every line of stdout is a message that can be read.",
        "A Tap outputs structured messages to stdout in JSON format, one message per line.",
        f"{SPECIFICATION}, Output",
        read_rules.every_line_is_a_message,
        "Send each message with all that its type requires.",
    ),
    Rule(
        "read_streams",
        "read",
        "Records are of the streams that were selected.",
        "The metadata for each stream object can be modified to select whether a stream and/or its fields should be "
        "replicated, and how the data should be replicated (FULL TABLE vs INCREMENTAL).",
        f"{SPECIFICATION}, Catalog",
        read_rules.records_are_declared,
        "Send no stream that is not selected, under the name that it has in the catalog.",
    ),
    Rule(
        "schemas_first",
        "read",
        "A SCHEMA comes before the first record of each stream.",
        "If a RECORD message from a stream is not preceded by a SCHEMA message for that stream, it is "
        "assumed to be schema-less.",
        f"{SPECIFICATION}, SCHEMA Message",
        read_rules.schemas_come_first,
        "Write the SCHEMA first.",
    ),
    Rule(
        "read_types",
        "read",
        "Each record fits the last SCHEMA of its stream: types, required properties, dates and times.",
        "A JSON Schema describing the data property of RECORDs from the same stream",
        f"{SPECIFICATION}, SCHEMA Message",
        read_rules.records_fit_their_schema,
        "Declare what the source sends (null too), or convert it.",
    ),
    Rule(
        "read_keys",
        "read",
        "Each record has its key properties.",
        "A list of strings indicating which properties make up the primary key for this stream.",
        f"{SPECIFICATION}, SCHEMA Message",
        read_rules.keys_are_there,
        "Declare key properties that every record has.",
    ),
    Rule(
        "states_come",
        "states",
        "Streams that are read incrementally have states.",
        "A Tap that wishes to persist state should periodically write STATE messages to stdout as it "
        "processes the stream",
        f"{SPECIFICATION}, State",
        state_rules.states_come,
        "Write a STATE after the last record of each stream, and in between if the stream is large.",
    ),
    Rule(
        "state_resumes",
        "states",
        "A read that resumes from a state in the middle brings all records behind it, and no others beyond "
        "the boundary.",
        "If it is invoked with a --state STATE argument it should read in the state file and start from the "
        "corresponding position in the stream.",
        f"{SPECIFICATION}, State",
        state_rules.read_resumes,
        "Save in each state the cursor of the last record that was sent before it, and read on from there.",
    ),
    Rule(
        "last_state_resumes",
        "states",
        "A read that resumes from the last state brings nothing again beyond the boundary.",
        "If it is invoked with a --state STATE argument it should read in the state file and start from the "
        "corresponding position in the stream.",
        f"{SPECIFICATION}, State",
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
        "If it is invoked with a --state STATE argument it should read in the state file and start from the "
        "corresponding position in the stream.",
        f"{SPECIFICATION}, State",
        state_rules.cancelled_read_resumes,
        "Save in each state the cursor of the last record that was sent before it, and read on from there.",
    ),
    Rule(
        "secrets_not_written",
        "security",
        "No secret of the config is in records, logs or errors.",
        "Logs and other information can be emitted to stderr for aiding debugging.",
        f"{SPECIFICATION}, Output",
        secret_rules.secrets_are_not_written,
        "Mask secrets before you log requests, URLs and configs.",
    ),
)
