"""Finds what a connector says between the stack traces that it writes.

A stack trace of a program that is not the reader's own hides the one line that says what went wrong. The run's log
keeps all of it. Python's traces end with the error, and those of other errors that led to it come first; in those of
Java and Node the error comes first.
"""

import re
from collections.abc import Iterable

# Of a connector's own INFO and DEBUG lines there are thousands.
_SHOWN_LEVELS = frozenset(("NOTE", "WARN", "ERROR", "FATAL"))
_MAX_LAST_LINES = 5
_SET_IN = "\n    "
_PYTHON_HEAD = "Traceback (most recent call last)"
_PYTHON_FRAME = re.compile(r'\s+File "[^"]*", line \d+|[╭│╰]')
_INSIDE_PYTHON = re.compile(r"\s|[╭│╰]|$")
_OTHER_FRAME = re.compile(r"\s+at \S|\s*\.\.\. \d+ (more|common)")
_CHAINED = re.compile("(During handling of the above exception|The above exception was the direct cause)")


def without_stack_traces(text: str) -> str:
    """Returns the text without stack traces. Of each Python trace the error stays, without those that led to it."""
    return "\n".join(_reduced(text.splitlines())[0]).strip("\n")


def brief_log_text(text: str) -> str:
    """Returns a text of a run's log without stack traces. The log sets further lines in, and an error may stand both
    before its stack trace and behind it."""
    return _SET_IN.join(dict.fromkeys(without_stack_traces(text.replace(_SET_IN, "\n")).split("\n")))


def brief_log_line(level: str, text: str) -> str:
    """Returns a line of a run's log as people see it; empty for a level that only the log shows."""
    return f"{level} {brief_log_text(text)}" if level in _SHOWN_LEVELS else ""


def last_words(lines: Iterable[str]) -> str:
    """Returns how a program's output ends: with the error of its last Python trace, or its last few lines."""
    reduced, error_at = _reduced(lines)
    said = [line for line in reduced[error_at:] if line.strip()]
    return "\n".join(said[:_MAX_LAST_LINES] if error_at else said[-_MAX_LAST_LINES:])


def first_words(text: str) -> str:
    """Returns how the text of an error begins: with the error of its last Python trace, else with its first lines.
    Whoever makes one puts the reason first, and then what it had tried (SQL, a request)."""
    reduced, error_at = _reduced(text.splitlines())
    return "\n".join([line for line in reduced[error_at:] if line.strip()][:_MAX_LAST_LINES])


def _reduced(lines: Iterable[str]) -> tuple[list[str], int]:
    """The lines without stack traces, and where the error of the last Python trace stands among them; 0 if there is
    none."""
    kept = [""]  # So that 0 is no place of an error.
    error_at, is_inside = 0, False
    for line in lines:
        if _PYTHON_HEAD in line or (not is_inside and _PYTHON_FRAME.match(line)):
            is_inside = True
        elif is_inside and _INSIDE_PYTHON.match(line):
            continue
        elif is_inside:
            is_inside, error_at = False, len(kept)
            kept.append(line)
        elif _CHAINED.match(line) and error_at:
            del kept[error_at:]
            error_at = 0
        elif not _OTHER_FRAME.match(line):
            kept.append(line)
    return kept, error_at
