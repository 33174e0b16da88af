"""Code references: links to an asset's code, which the web server shows beside it."""

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg

from dagster_airbyte_proto.connection import Connection

KEY = "dagster/code_references"
_Reference = dg.LocalFileCodeReference | dg.UrlCodeReference


@contextmanager
def _without_beta_warning() -> Iterator[None]:
    """Suppresses Dagster's beta warning for code references: users of this package did not choose that API."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        yield


def code_references(connection: Connection, function: Callable[..., Any] | None) -> dg.CodeReferencesMetadataValue:
    """References to the decorated function and to the connection's file, as far as there are any."""
    with _without_beta_warning():
        references: list[_Reference] = [] if function is None else [_reference("step", *_source_location(function))]
        if connection.origin:
            references.append(_reference("connection", connection.origin, 1))
        return dg.CodeReferencesMetadataValue(code_references=references)


def with_references(spec: dg.AssetSpec, references: dg.CodeReferencesMetadataValue) -> dict[str, Any]:
    """The metadata of the spec, with these references added after its own."""
    own = spec.metadata.get(KEY)
    if isinstance(own, dg.CodeReferencesMetadataValue):
        with _without_beta_warning():
            both = [*own.code_references, *references.code_references]
            references = dg.CodeReferencesMetadataValue(code_references=both)
    return {**spec.metadata, KEY: references} if references.code_references else dict(spec.metadata)


def _source_location(function: Callable[..., Any]) -> tuple[Path, int]:
    code = inspect.unwrap(function).__code__
    return Path(code.co_filename), code.co_firstlineno


def _reference(label: str, file: Path, line: int) -> dg.LocalFileCodeReference:
    return dg.LocalFileCodeReference(file_path=str(file.absolute()), line_number=line, label=label)
