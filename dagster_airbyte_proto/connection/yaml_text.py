"""Writes values as YAML that our reader and YAML 1.1 both read back as the same values."""

import json
import re
from collections.abc import Mapping
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(?:[./][A-Za-z0-9_-]+)*")
_RESERVED_WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def yaml_text(value: Any) -> str:
    """Returns a value as YAML on one line. Text is quoted if it could be read as anything else."""
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and value.lower() not in _RESERVED_WORDS else _quoted(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{yaml_text(str(key))}: {yaml_text(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(yaml_text, value)) + "]"
    written = json.dumps(value)
    # 1e+300 is text to YAML 1.1, 1.0e+300 is not.
    return re.sub(r"^(-?[0-9]+)e", r"\1.0e", written) if isinstance(value, float) else written


def _quoted(text: str) -> str:
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False))
