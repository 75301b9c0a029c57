"""`onebasin symmetries`: a group, printed and proved."""

from typing import Annotated

import typer

import onebasin
from onebasin._factory import EXPECTED, load_model
from onebasin.cli.messages import working


def symmetries(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FACTORY",
            help="A function without arguments, as my_models:factory or path/to/file.py:factory. "
            f"It returns {EXPECTED}.",
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the group as JSON, for a script.")
    ] = False,
    seed: Annotated[
        int, typer.Option(min=0, help="For the parameters of a net and the random elements.")
    ] = 0,
) -> None:
    """Find, print and prove the symmetry group of your own model.

    Example: `onebasin symmetries examples/own_model.py:factory`
    """
    with working(f"Reading the symmetries of {model}", as_json):
        apply_fn, params, inputs = load_model(model, seed)
        symmetry = onebasin.discover(apply_fn, params, inputs)
        deviation = onebasin.check_symmetry(symmetry, apply_fn, params, inputs, seed=seed)
    if as_json:
        typer.echo(symmetry.to_json())
        return
    typer.echo(str(symmetry))
    typer.echo(f"Verified: random elements change the outputs by {deviation:.0e} of the largest.")
