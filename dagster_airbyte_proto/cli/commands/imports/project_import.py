"""`import`: connection files from a project of another program."""

from pathlib import Path

import click

from dagster_airbyte_proto.cli.call import Call, command_in
from dagster_airbyte_proto.cli.commands.imports.meltano import MeltanoChoice, imported_taps
from dagster_airbyte_proto.cli.commands.imports.rapidbyte import imported_pipeline_file, pipeline_in
from dagster_airbyte_proto.cli.commands.imports.syncmaven import imported_syncs
from dagster_airbyte_proto.cli.output import Answer
from dagster_airbyte_proto.cli.program import program
from dagster_airbyte_proto.errors import ConfigError


@command_in(program, "import")
@click.argument("file", metavar="PROJECT", type=click.Path(path_type=Path))
@click.option(
    "--into",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the files; default: this one.",
)
@click.option("--environment", metavar="NAME", help="Default: the project's default_environment.")
@click.option("--tap", "taps", metavar="NAME", multiple=True, help="Import only this tap; may be repeated.")
@click.option("--loader", metavar="NAME", help="Send the records to this loader, in the place of tables.")
@click.option(
    "--state", "states", metavar="TAP=FILE", multiple=True, help="A file with the output of `meltano state get`."
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def import_project(
    call: Call, file: Path, into: Path | None, environment: str | None, taps: tuple[str, ...],
    loader: str | None, states: tuple[str, ...], force: bool,
) -> Answer:  # fmt: skip
    """Writes connection files from a project of another program: PROJECT is a file or a folder.

    From Meltano: a file for each tap, with its state. With --loader each is a relay. From Syncmaven: a push file for
    each sync. From a pipeline of Rapidbyte (its YAML file): a relay.

    If a tap's selection rules need its catalog, the tap is started to discover it. The output lists what could not be
    carried over.
    """
    choice, folder = MeltanoChoice(environment, taps, loader, states), into or Path()
    if (file / "syncs").is_dir():
        if choice != MeltanoChoice():
            raise click.UsageError("a Syncmaven project takes --into and --force only")
        return imported_syncs(file, folder, force=force)
    if file.is_dir():
        if not (file / "meltano.yml").is_file():
            remedy = "A project of Meltano has a meltano.yml, one of Syncmaven a folder `syncs`."
            raise ConfigError(f"importing {file}", "the folder is no project that is known", remedy=remedy)
        file = file / "meltano.yml"
    pipeline = pipeline_in(file)
    if pipeline is not None:
        if choice != MeltanoChoice():
            raise click.UsageError("a pipeline of Rapidbyte takes --into and --force only")
        return imported_pipeline_file(file, pipeline, folder, force=force)
    return imported_taps(call, file, folder, choice, force=force)
