"""`query`. Slow modules are imported when the command runs; see call.py."""

import click

from dagster_airbyte_proto.cli.call import Call, command_in
from dagster_airbyte_proto.cli.output import Answer, Grid
from dagster_airbyte_proto.cli.program import program
from dagster_airbyte_proto.plurals import counted


@command_in(program, "query")
@click.argument("sql", metavar="SQL")
def query(call: Call, sql: str) -> Answer:
    """Runs SQL on the warehouse and prints its rows."""
    with call.engine() as engine:
        found = engine.query(sql)
    value = {"columns": list(found.columns), "rows": found.rows}
    if not found.columns:  # As of a CREATE TABLE.
        return Answer(value, ("done",))
    return Answer(value, (Grid(found.columns, found.rows), counted(len(found.rows), "row")))
