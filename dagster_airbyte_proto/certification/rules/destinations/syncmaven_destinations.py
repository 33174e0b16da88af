"""The rules of Syncmaven's protocol for destinations."""

from dagster_airbyte_proto.certification.rule import Rule
from dagster_airbyte_proto.certification.rules import check_rules, spec_rules
from dagster_airbyte_proto.certification.rules.destinations import host_rules, object_rules, result_rules, write_rules
from dagster_airbyte_proto.certification.writes.write_evidence import DestinationEvidence

_PROTOCOL = "Syncmaven protocol"
_HOST = "what a host needs of a destination"

SYNCMAVEN_DESTINATION_RULES: tuple[Rule[DestinationEvidence], ...] = (
    Rule(
        "spec_answered",
        "spec",
        "`describe` is answered by a `spec`.",
        "",
        _PROTOCOL,
        spec_rules.spec_is_answered,
        "Write one line of the type `spec`, and end when stdin ends.",
    ),
    Rule(
        "spec_valid",
        "spec",
        "`connectionCredentials` is a valid JSON schema of an object.",
        "",
        _PROTOCOL,
        spec_rules.spec_is_a_schema,
        "Send JSON Schema: a Zod object that is printed as JSON says nothing to others.",
    ),
    Rule(
        "check_succeeds",
        "check",
        "`describe-streams`, which is its check, succeeds with credentials that work.",
        "",
        _PROTOCOL,
        check_rules.check_succeeds,
        "Are the connection's credentials right? If they are, mend `describe-streams`.",
    ),
    Rule(
        "check_refuses",
        "check",
        "It halts with an error on bad credentials.",
        "",
        _PROTOCOL,
        check_rules.schema_or_check_refuses_bad_configs,
        "Try the credentials, and send a `halt` with the status `error` and a message.",
    ),
    Rule(
        "check_ends",
        "check",
        "It ends in time on bad credentials too.",
        "",
        _PROTOCOL,
        check_rules.check_ends,
        "Set timeouts on what it connects to, and limit its retries.",
    ),
    Rule(
        "objects_valid",
        "discover",
        "Its streams are there once, with valid schemas of rows and options.",
        "",
        _PROTOCOL,
        object_rules.objects_are_valid,
        "Mend the schemas of these streams.",
    ),
    Rule(
        "write_ends",
        "rows",
        "It ends by itself after `end-stream`, without a halt.",
        "",
        _HOST,
        write_rules.write_ends,
        "Look at the samples and its log.",
    ),
    Rule(
        "empty_input_ends",
        "rows",
        "A stream without rows ends well too.",
        "",
        _HOST,
        write_rules.empty_write_ends,
        "A stream without new rows is no error.",
    ),
    host_rules.AGAIN,
    Rule(
        "result_comes",
        "result",
        "A `stream-result` comes after `end-stream`.",
        "",
        _PROTOCOL,
        result_rules.result_comes,
        "Send it when the rows are safe: without it none counts as delivered.",
    ),
    Rule(
        "result_counts",
        "result",
        "It counts the rows that it got.",
        "",
        _PROTOCOL,
        result_rules.result_counts_rows,
        "Count each row as received, and as a success, skipped or failed: without counts none is delivered.",
    ),
    *host_rules.ENDINGS,
    *host_rules.LONG,
    host_rules.SECRETS,
)
