"""Quotes names and literals for Spark SQL, and reads names."""

import re
from collections.abc import Sequence

from dagster_airbyte_proto.errors import ConfigError
from dagster_airbyte_proto.model import TableName

# Spark's list of the words that ANSI SQL reserves. Unquoted, `null` and `current_date` are not read as columns.
_RESERVED = re.compile(
    r"all|and|anti|any|as|authorization|both|case|cast|check|collate|collation|column|constraint|create|cross|"
    r"current_date|current_time|current_timestamp|current_user|distinct|else|end|escape|except|execute|exists|"
    r"false|fetch|filter|for|foreign|from|full|function|grant|group|having|in|inner|intersect|interval|into|is|"
    r"join|lateral|leading|left|localtimestamp|natural|not|null|offset|on|only|or|order|outer|overlaps|primary|"
    r"references|right|select|semi|session_user|some|sql|struct|table|then|time|to|trailing|true|union|unique|"
    r"unknown|user|using|values|when|where|window|with",
    re.IGNORECASE,
)

_SESSION_CATALOG_NAME = re.compile(r"\w+", re.ASCII)
_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
_NAME = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def quoted(name: str) -> str:
    """Returns a name for Spark SQL, in backticks if it needs them."""
    is_plain = _PLAIN_NAME.fullmatch(name) and not _RESERVED.fullmatch(name)
    return name if is_plain else "`" + name.replace("`", "``") + "`"


def text_literal(text: str) -> str:
    """Returns a text literal for Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def text_literals(texts: Sequence[str]) -> str:
    """Returns text literals for Spark SQL, with commas between them."""
    return ", ".join(map(text_literal, texts))


def is_catalog_name(name: TableName) -> bool:
    """True for a plain name: Spark's session catalog takes no other one, quoted or not."""
    return all(_SESSION_CATALOG_NAME.fullmatch(part) for part in name)


def is_by_folder(table: str) -> bool:
    """True for the name of a table that is read by its folder, whether a catalog knows it or not."""
    return re.fullmatch(r"(delta|parquet)\.`[^`]*/.*`", table) is not None


def qualified(catalog: str, name: TableName) -> str:
    """Returns the name of a table as a user writes it in SQL."""
    return ".".join(quoted(part) for part in (catalog, *name))


def name_parts(name: str, looked_for: str, found: str) -> tuple[str, ...]:
    """Returns the parts of a name, as a user writes it in SQL. Raises ConfigError if it is none."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"looking for {looked_for}",
            found,
            remedy="Write it as in SQL: lake.shop.users, with backticks around a part that contains a dot.",
        )
    return tuple(plain or quoted.replace("``", "`") for quoted, plain in _PART.findall(name))
