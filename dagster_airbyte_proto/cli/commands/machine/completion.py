"""`completion`."""

import click
from click.shell_completion import ShellComplete, get_completion_class

from dagster_airbyte_proto.cli.call import Call, command_in
from dagster_airbyte_proto.cli.output import Answer
from dagster_airbyte_proto.cli.program import program

_NAME, _VARIABLE = "airbyte-proto", "_AIRBYTE_PROTO_COMPLETE"


@command_in(program, "completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(call: Call, shell: str) -> Answer:  # noqa: ARG001 - every command takes the call
    """Prints a script by which a shell completes commands, options, connection files and connections.

    In ~/.bashrc or ~/.zshrc: eval "$(airbyte-proto completion bash)", or zsh. For fish, write it into
    ~/.config/fish/completions/airbyte-proto.fish.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    # Not the method of the class: that of bash starts a bash, to learn its version.
    script = ShellComplete.source(kind(program, {}, _NAME, _VARIABLE))
    return Answer({"shell": shell, "script": script}, (script,))
