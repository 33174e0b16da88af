"""A connection file from a pipeline of Rapidbyte. Slow modules are imported when it runs; see call.py."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dagster_airbyte_proto.cli.commands.imports.written import check_free, write_connection
from dagster_airbyte_proto.cli.output import Answer, plain


def pipeline_in(file: Path) -> Mapping[str, Any] | None:
    """Returns the content of a file that holds a pipeline; None for any other file."""
    from dagster_airbyte_proto.connection.document import read_document
    from dagster_airbyte_proto.connection.rapidbyte.pipeline import is_pipeline

    document = read_document(file, what="project file").data
    return document if is_pipeline(document) else None


def imported_pipeline_file(file: Path, document: Mapping[str, Any], folder: Path, *, force: bool) -> Answer:
    """Writes the connection file of a pipeline."""
    from dagster_airbyte_proto.connection.rapidbyte.pipeline import imported_pipeline
    from dagster_airbyte_proto.sync.connector.new_connection import connection_name

    imported = imported_pipeline(document, file.stem)
    path = folder / f"{connection_name(imported.name)}.yaml"
    check_free([path], [file], force=force)
    write_connection(path, [f"# {plain(imported.name)} of {plain(file.name)}"], imported.document, force=force)
    unset = [name for name in imported.variables if name not in os.environ]
    lines = [f"{imported.name} -> {path}"]
    lines += [f"  the component {each} has to be there" for each in imported.components]
    lines += [f"  to set in the environment: {', '.join(unset)}"] if unset else []
    lines += [f"  not carried over: {plain(text, max_characters=2000)}" for text in imported.left]
    lines.append(f"  then: airbyte-proto check {shlex.quote(str(path))}")
    made = {
        "pipeline": imported.name,
        "file": str(path),
        "components": list(imported.components),
        "variables": list(imported.variables),
        "not_carried_over": list(imported.left),
    }
    return Answer({"connections": [made], "not_carried_over": []}, tuple(lines))
