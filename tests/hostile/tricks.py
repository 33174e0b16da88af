"""The tricks that `connector.py` knows, each with what a sync must make of it and what it may cost."""

from typing import Any, NamedTuple

MEBIBYTE = 1 << 20


class Trick(NamedTuple):
    """A trick, its outcome and its budgets.

    `status` is the sync's; `bad` is the number of good records of stream `bad` that land, `good` that of stream `good`,
    and `more` is the number of further rows of `bad`. `error` is a part of what the user reads. Memory is the peak of
    our process, which has about 120 MiB after its imports. `disk_mebibytes` is all of the home with the warehouse, but
    its logs. `nightly` tricks take long. `is_impatient` has the sync wait two seconds, for tricks without an end.
    """

    name: str
    status: str = "complete"
    good: int = 20
    bad: int = 20
    more: int = 0
    error: str = ""
    seconds: float = 30.0
    memory_mebibytes: int = 220
    disk_mebibytes: float = 2.0
    log_mebibytes: float = 1.0
    nightly: bool = True
    is_impatient: bool = False


def _quick(name: str, **expected: Any) -> Trick:
    return Trick(name)._replace(nightly=False, **expected)


def _endless(name: str, error: str = "no record and no new state was received", **expected: Any) -> Trick:
    trick = Trick(name, "failed", 10, 10, error=error, is_impatient=True)
    return trick._replace(**expected)


def _refused(name: str, error: str, **expected: Any) -> Trick:
    return Trick(name, "refused", 0, 0, error=error)._replace(**expected)


_STILL_RUNS: dict[str, Any] = {"status": "partial", "is_impatient": True}

TRICKS = (
    # Specs and catalogs
    _refused("deep_spec", "for its spec: its answer cannot be read", nightly=False),
    Trick("recursive_spec"),
    Trick("spec_of_nul_and_surrogates"),
    _refused("deep_catalog", "stream number 1 cannot be read"),
    _refused("silent_discover", "it ended without an answer"),
    Trick("deep_schema"),
    Trick("recursive_references"),
    Trick("doubling_references"),
    Trick("two_catalogs"),
    Trick("many_streams", seconds=60.0, memory_mebibytes=900, disk_mebibytes=100.0),
    _refused("endless_spec", "it wrote over 268435456 bytes", memory_mebibytes=600),
    _refused("endless_discover", "it wrote over 268435456 bytes", memory_mebibytes=600),
    # Values
    _quick("deep_record", more=1),
    Trick("huge_exponent", more=1),
    Trick("many_digits", more=1, memory_mebibytes=320),
    Trick("many_digits_as_number", more=1),
    Trick("invalid_utf8", more=1),
    Trick("nul_bytes"),
    Trick("lone_surrogates", more=1),
    Trick("emitted_beyond_any_date", more=3),
    Trick("many_fields", more=1),
    Trick("many_fields_each_time", more=100),
    # Lines
    _endless("endless_line", "a line of more than 268435456 bytes", memory_mebibytes=600),
    Trick("long_line", "failed", 10, 10, error="a line of more than 268435456 bytes", memory_mebibytes=600),
    Trick("long_plain_line", memory_mebibytes=700),
    Trick("nul_line"),
    Trick("dribble"),
    _endless("endless_dribble"),
    # What only people read
    _quick("long_log_message", memory_mebibytes=700),
    _quick("many_errors", log_mebibytes=37.0),
    Trick("long_error_message", "partial", error="x", memory_mebibytes=800),
    Trick("error_traces", "partial", bad=10, log_mebibytes=37.0),
    Trick("many_stderr_lines", log_mebibytes=37.0),
    Trick("long_stderr_line"),
    _endless("endless_plain_lines", log_mebibytes=37.0),
    Trick("deep_log"),
    Trick("deep_error"),
    # States
    _quick("deep_state"),
    Trick("state_with_nul"),
    Trick("state_with_raw_nul"),
    Trick("state_with_surrogate"),
    Trick("state_with_invalid_utf8"),
    Trick("state_with_huge_number"),
    Trick("many_states"),
    _endless("endless_states", "only states and no record were received for 3 s"),
    _endless("endless_identical_states"),
    Trick("huge_state", "partial", bad=10, error="max_state_bytes", memory_mebibytes=700),
    # Configs
    _quick("huge_config", memory_mebibytes=700),
    Trick("deep_control"),
    Trick("deep_config_below_parsers"),
    _quick("many_configs"),
    Trick("many_tokens"),
    # Names
    Trick("undeclared_streams", seconds=60.0),
    Trick("statuses_of_unknown_streams"),
    Trick("states_of_unknown_streams"),
    # Ends
    _quick("leaves_children"),
    Trick("lives_on", **_STILL_RUNS),
    Trick("lives_on_and_ignores_sigterm", **_STILL_RUNS),
    Trick("closes_stdout_and_lives_on", **_STILL_RUNS),
    Trick("second_catalog"),
    Trick("exit_0_without_a_word", good=0, bad=0),
    _quick("exit_1_without_a_word", status="failed", good=0, bad=0, error="exited with code 1"),
    Trick("exit_1_after_everything", "partial"),
)
