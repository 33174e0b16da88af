"""The rules of Airbyte's protocol for destinations."""

from dagster_airbyte_proto.certification.rule import Rule
from dagster_airbyte_proto.certification.rules import airbyte
from dagster_airbyte_proto.certification.rules.destinations import echo_rules, host_rules, object_rules, write_rules
from dagster_airbyte_proto.certification.writes.write_evidence import DestinationEvidence

_SPECIFICATION = "Airbyte specification, Destination"
_PROTOCOL = "Airbyte protocol, Destination"
_STATS = "Airbyte protocol, as it is today: AirbyteStateStats"
_ONLY_RECEIVED = (
    "The destination connector should only output state messages if they were previously received as input on stdin."
)
_OUTPUT_MEANS = (
    "Outputting a state message indicates that all records which came before it have been successfully written to the "
    "destination."
)

AIRBYTE_DESTINATION_RULES: tuple[Rule[DestinationEvidence], ...] = (
    # "They are exactly the same as those commands described for the Source."
    *airbyte.SHORT_RULES,
    Rule(
        "objects_valid",
        "discover",
        "The objects that it lists are there once in each mode, with valid schemas.",
        "",
        "Airbyte protocol, as it is today: DestinationCatalog",
        object_rules.objects_are_valid,
        "Mend the schemas of these objects.",
    ),
    Rule(
        "write_ends",
        "rows",
        "`write` ends by itself after the end of its input, with exit code 0 and without an error.",
        "The destination should read in the `AirbyteMessages` and write any that are of type `AirbyteRecordMessage` to "
        "the underlying data store.",
        _PROTOCOL,
        write_rules.write_ends,
        "Look at the samples and the destination's log.",
    ),
    Rule(
        "empty_input_ends",
        "rows",
        "`write` without a row ends well too, and sends no state.",
        _ONLY_RECEIVED,
        _PROTOCOL,
        write_rules.empty_write_ends,
        "A stream without new rows is no error.",
    ),
    Rule(
        "write_messages",
        "rows",
        "Every line of stdout is a message.",
        "All messages passed to and from connectors must be wrapped in an `AirbyteMessage` envelope and serialized as "
        "JSON.",
        "Airbyte specification, The Airbyte Protocol",
        write_rules.lines_are_messages,
        "Send logs as LOG messages, or to stderr.",
    ),
    host_rules.TYPES,
    Rule(
        "misfit_is_loud",
        "rows",
        "A row that does not fit the schema of its stream is rejected, or fails the write; it is not dropped.",
        "The destination should fail if any of the messages it receives do not match the structure described in the "
        "`catalog`.",
        _SPECIFICATION,
        write_rules.misfit_is_loud,
        "Count it in `destinationStats.rejectedRecordCount`, or fail.",
    ),
    host_rules.AGAIN,
    Rule(
        "states_come_back",
        "states",
        "The states that it was sent come back, the last one at the latest when it ends.",
        _OUTPUT_MEANS,
        _PROTOCOL,
        echo_rules.states_come_back,
    ),
    Rule(
        "states_unchanged",
        "states",
        "The states that come back are those that it was sent, with the same content.",
        _ONLY_RECEIVED,
        _PROTOCOL,
        echo_rules.states_are_ours,
        "Send back the message that came in. Only its counts may be added.",
    ),
    Rule(
        "states_in_order",
        "states",
        "They come back in the order in which they were sent.",
        _OUTPUT_MEANS,
        _PROTOCOL,
        echo_rules.states_are_in_order,
        "Hold a state back until the rows before it are safe, and all states before it are out.",
    ),
    Rule(
        "states_count",
        "states",
        "`destinationStats.recordCount` is the number of records since the state before.",
        "",
        _STATS,
        echo_rules.states_count_rows,
        "Count the records that are safe, and begin again at each state.",
    ),
    host_rules.SETTING,
    *host_rules.ENDINGS,
    *host_rules.LONG,
    host_rules.SECRETS,
)
