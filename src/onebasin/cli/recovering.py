"""`onebasin recover`: a damaged run goes back to the transaction before its last."""

from pathlib import Path
from typing import Annotated

import typer

from onebasin.cli.messages import print_json, working
from onebasin.cli.networks import JsonOption


def recover(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="The folder of a run, as `run=` of a method made it."),
    ],
    yes: Annotated[
        bool, typer.Option("--yes", help="Go back; without it nothing is changed.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Take a run whose last files are damaged back to the transaction before, and say what is lost.

    Without `--yes` it only says what would be. What is lost is computed again, the same, when the
    run goes on.

    Example: `onebasin recover runs/hmc --yes`
    """
    from onebasin.store import Run

    with working(f"Reading the run in {run}", as_json):
        found = Run.recover(run) if yes else Run.recovery(run)
    changed = bool(found.reason) and yes
    if as_json:
        print_json(
            {
                "run": str(run),
                "whole": not found.reason,
                "reason": found.reason,
                "transactions": found.transactions,
                "kept": found.kept,
                "lost": found.lost,
                "recovered": changed,
            }
        )
        return
    typer.echo(f"{str(found)[0].upper()}{str(found)[1:]}.")
    if changed:
        typer.echo("The run was taken back: give the command that made it again.")
    elif found.reason:
        typer.echo("Nothing was changed: add --yes to go back.")
