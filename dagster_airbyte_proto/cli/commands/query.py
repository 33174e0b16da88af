"""`query`. Slow modules are imported when the command runs; see call.py."""

import click

from dagster_airbyte_proto.cli.call import Call, command_in
from dagster_airbyte_proto.cli.output import Answer, Grid, counted
from dagster_airbyte_proto.cli.program import program


@command_in(program, "query")
@click.argument("sql", metavar="SQL")
def query(call: Call, sql: str) -> Answer:
    """Runs SQL on the warehouse and prints its rows."""
    with call.engine() as engine:
        found = engine.query(sql)
    value = {"columns": list(found.columns), "rows": found.rows}
    parts: tuple[str | Grid, ...] = (Grid(found.columns, found.rows),) if found.columns else ()
    return Answer(value, (*parts, counted(len(found.rows), "row")))
