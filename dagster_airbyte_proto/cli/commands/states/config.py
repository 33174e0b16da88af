"""`config history|reset`. Slow modules are imported when a command runs; see call.py."""

from typing import Any

import click

from dagster_airbyte_proto.cli.call import Call, command_in, user_name
from dagster_airbyte_proto.cli.commands.states.state_words import hand_lease
from dagster_airbyte_proto.cli.output import Answer, Grid
from dagster_airbyte_proto.cli.program import config as group

_NO_CONFIG = "the connector wrote no config back"
_HISTORY = ("version", "of", "changed", "who", "run", "keys")


@command_in(group, "history")
@click.argument("connection", metavar="C")
def config_history(call: Call, connection: str) -> Answer:
    """Lists the last configs that a connector wrote back: when, in which run, with which keys."""
    target = call.known_connection_target(connection)
    # No value is shown: any may be secret.
    changes = [
        {
            "version": change.version,
            "of": change.owner.value,
            "changed_at": change.changed_at.isoformat(),
            "who": change.who,
            "run_id": change.run_id,
            "keys": None if change.config is None else sorted(change.config),
        }
        for change in call.store().config_changes(target.name)
    ]
    rows = [(*(str(value) for value in list(change.values())[:-1]), _keys_text(change["keys"])) for change in changes]
    grid = Grid(_HISTORY, rows, texts=("keys",))
    value = {"connection": target.name, "history": changes}
    return Answer(value, (grid if rows else f"{target.name}: {_NO_CONFIG}",))


def _keys_text(keys: Any) -> str:
    return "(dropped)" if keys is None else ", ".join(keys)


@command_in(group, "reset")
@click.argument("connection", metavar="C")
def reset_config(call: Call, connection: str) -> Answer:
    """Drops the configs that connector and destination wrote back: the next run uses the connection's own."""
    target = call.known_connection_target(connection)
    store = call.store()
    with hand_lease(call, store, target.name) as lease:
        was_there = store.drop_config(lease, who=user_name())
    done = "dropped the config that the connector wrote back" if was_there else _NO_CONFIG
    return Answer({"connection": target.name, "dropped": was_there}, (f"{target.name}: {done}",))
