"""The rules for Singer targets: the specification says little of them, the guide for authors a little more."""

from dagster_airbyte_proto.certification.rule import Rule
from dagster_airbyte_proto.certification.rules import check_rules, spec_rules
from dagster_airbyte_proto.certification.rules.destinations import echo_rules, host_rules, write_rules
from dagster_airbyte_proto.certification.rules.singer_rules import (
    EXIT_CODES,
    SDK,
    SETTINGS_RULES,
    SPECIFICATION,
    bad_config_rules,
)
from dagster_airbyte_proto.certification.writes.write_evidence import DestinationEvidence

_GUIDE = "Singer's guide, Developing a Target"
_STATES = (
    "Write State messages to stdout once all data that appeared in the stream before the State message has been "
    "processed by the Target."
)
_REPEATS = (
    "in most cases the Target's process won't actually store it anywhere or do anything with it other than repeat it "
    "back to stdout."
)

SINGER_TARGET_RULES: tuple[Rule[DestinationEvidence], ...] = (
    Rule(
        "about_answered",
        "spec",
        "`--about --format=json` or `--help` says which flags the target takes.",
        "",
        SDK,
        spec_rules.spec_is_answered,
        "Name the flags in the usage text, or build the target on the SDK.",
    ),
    *SETTINGS_RULES,
    Rule(
        "check_succeeds",
        "check",
        "A run without input, which is a target's only check, succeeds on a config that works.",
        EXIT_CODES,
        f"{SPECIFICATION}, Output",
        check_rules.check_succeeds,
        "Is the connection's config right? If it is, mend what the target does before its first line.",
    ),
    *bad_config_rules("target"),
    Rule(
        "write_ends",
        "rows",
        "The target ends by itself after the end of its input, with exit code 0.",
        EXIT_CODES,
        f"{SPECIFICATION}, Output",
        write_rules.write_ends,
        "Look at the samples and the target's log.",
    ),
    Rule(
        "empty_input_ends",
        "rows",
        "A schema without records is written well too, and no state comes back.",
        EXIT_CODES,
        f"{SPECIFICATION}, Output",
        write_rules.empty_write_ends,
        "A stream without new rows is no error.",
    ),
    Rule(
        "write_messages",
        "rows",
        "Every line of stdout is a state.",
        "Logs and other information can be emitted to stderr for aiding debugging.",
        f"{SPECIFICATION}, Output",
        write_rules.lines_are_messages,
        "Write logs to stderr.",
    ),
    host_rules.TYPES,
    Rule(
        "misfit_is_loud",
        "rows",
        "A record that does not fit its schema is rejected, or fails the write; it is not dropped.",
        "Schema validation should be performed to ensure that the records being written for a stream comform to the "
        "schema defined for that stream.",
        _GUIDE,
        write_rules.misfit_is_loud,
        "Validate records against the last SCHEMA, and end with an exit code other than 0.",
    ),
    host_rules.AGAIN,
    Rule(
        "states_come_back",
        "states",
        "The states that it was sent come back, the last one at the latest when it ends.",
        _STATES,
        _GUIDE,
        echo_rules.states_come_back,
    ),
    Rule(
        "states_unchanged",
        "states",
        "The states that come back are those that it was sent, with the same content.",
        _REPEATS,
        _GUIDE,
        echo_rules.states_are_ours,
        "Print the value of the STATE message as it came in.",
    ),
    Rule(
        "states_in_order",
        "states",
        "They come back in the order in which they were sent.",
        _STATES,
        _GUIDE,
        echo_rules.states_are_in_order,
        "Hold a state back until the records before it are safe, and all states before it are out.",
    ),
    host_rules.SETTING,
    *host_rules.ENDINGS,
    *host_rules.LONG,
    host_rules.SECRETS,
)
