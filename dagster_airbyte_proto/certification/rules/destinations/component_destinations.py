"""The rules of version 4 of Rapidbyte's protocol for destinations, which are WebAssembly components.

Some of the rules of other protocols have nothing to judge here: the host frames its batches, and ends the component.
"""

from dagster_airbyte_proto.certification.rule import Rule
from dagster_airbyte_proto.certification.rules import manifest_rules
from dagster_airbyte_proto.certification.rules.component_rules import CURSORS, HOST, PROTOCOL, config_rules
from dagster_airbyte_proto.certification.rules.destinations import echo_rules, host_rules, write_rules
from dagster_airbyte_proto.certification.writes.write_evidence import DestinationEvidence

COMPONENT_DESTINATION_RULES: tuple[Rule[DestinationEvidence], ...] = (
    Rule(
        "manifest_fits",
        "spec",
        "The manifest has the role `destination`, and the version 4.",
        "Host validates connector manifest role compatibility before run/check/discover",
        f"{PROTOCOL}, Manifest Compatibility",
        manifest_rules.manifest_of_destination_is_there,
        "Name `roles: {destination: {}}` and `protocol_version: 4` in the section `rapidbyte_manifest_v1`.",
    ),
    *config_rules("Destination"),
    Rule(
        "write_ends",
        "rows",
        "`run` ends by itself after the last batch, without an error and without a trap.",
        "`run(session, request)` (one stream at a time)",
        f"{PROTOCOL}, Destination",
        write_rules.write_ends,
        "Look at the samples and the component's log.",
    ),
    Rule(
        "empty_input_ends",
        "rows",
        "`run` without a batch ends well too.",
        "",
        HOST,
        write_rules.empty_write_ends,
        "A stream without new rows is no error.",
    ),
    host_rules.TYPES,
    host_rules.AGAIN,
    Rule(
        "checkpoints_come",
        "checkpoints",
        "Its checkpoints and its good end prove all rows that it was sent.",
        CURSORS,
        f"{PROTOCOL}, Checkpoint Coordination",
        echo_rules.checkpoints_come,
    ),
    Rule(
        "checkpoints_in_order",
        "checkpoints",
        "They come in the order of the rows.",
        CURSORS,
        f"{PROTOCOL}, Checkpoint Coordination",
        echo_rules.states_are_in_order,
        "Count the records that are safe in `records_processed`, from the beginning of the run.",
    ),
    host_rules.SETTING,
    *host_rules.LONG,
    host_rules.SECRETS,
)
