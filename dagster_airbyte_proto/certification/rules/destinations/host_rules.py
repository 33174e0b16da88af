"""The rules on destinations of any protocol, which follow from what a host does with them."""

from dagster_airbyte_proto.certification.rule import Rule
from dagster_airbyte_proto.certification.rules import secret_rules
from dagster_airbyte_proto.certification.rules.destinations import echo_rules, write_rules

_CANCELS = "what hosts do to cancel a run"
_HOST = "what a host needs of a destination"

TYPES = Rule(
    "write_types",
    "rows",
    "Rows with each kind of value, and with each odd name of a field, are taken, or refused by an error.",
    "",
    _HOST,
    write_rules.types_are_taken,
    "Take these, or name in its documentation what it does not take.",
)
AGAIN = Rule(
    "write_again",
    "rows",
    "The same rows can be written again in a mode by key.",
    "",
    "what a host does with rows that were not acknowledged",
    write_rules.same_rows_again,
    "Replace rows of the same key. Every push that fails in its middle sends rows again.",
)
SETTING = Rule(
    "acknowledge_setting",
    "states",
    "The connection's `acknowledge` is the one that this destination needs.",
    "",
    _HOST,
    echo_rules.setting_fits,
)
ENDINGS = (
    Rule(
        "cut_input_ends",
        "ending",
        "A write whose input ends in the middle of a line ends in time, and fails.",
        "",
        "what is left of a host that was killed",
        write_rules.cut_write_ends,
        "End when stdin ends, and fail where a line cannot be read.",
    ),
    Rule(
        "cancel_ends",
        "ending",
        "A write ends on SIGTERM.",
        "",
        _CANCELS,
        write_rules.cancelled_write_ends,
        "Leave SIGTERM its default; or write what has gathered, send its states back, and end.",
    ),
)
LONG = (
    Rule(
        "memory_flat",
        "long writes",
        "Its memory does not grow with the rows.",
        "",
        _HOST,
        write_rules.memory_is_flat,
        "Write what has gathered at each state, or at a fixed size.",
    ),
    Rule(
        "speed_flat",
        "long writes",
        "A long write ends well, and its second half is about as fast as its first.",
        "",
        _HOST,
        write_rules.speed_is_flat,
        "Look at its log.",
    ),
)
SECRETS = Rule(
    "secrets_not_written",
    "security",
    "No secret of the config is in logs, errors or states.",
    "",
    _HOST,
    secret_rules.secrets_are_not_written,
    "Mask secrets before you log requests, URLs and configs.",
)
