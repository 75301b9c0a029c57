"""The application: which commands there are."""

import importlib.metadata
from typing import Annotated

import typer

from onebasin.cli.aligning import align
from onebasin.cli.barriers import barrier
from onebasin.cli.datasets import app as data
from onebasin.cli.groups import symmetries
from onebasin.cli.recovering import recover
from onebasin.cli.reporting import report
from onebasin.cli.studying import demo, study

app = typer.Typer(
    name="onebasin",
    help="Bayesian neural network posteriors, modulo symmetry.\n\nExample: `onebasin demo`",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
)
for command in (symmetries, align, barrier, study, report, recover, demo):
    app.command()(command)
app.add_typer(data, name="data")


def main() -> None:
    """Run the command line; the entry point of the `onebasin` script."""
    app()


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"onebasin {importlib.metadata.version('onebasin')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass
