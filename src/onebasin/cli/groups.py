"""`onebasin symmetries` and `onebasin demo`: groups, printed and proved."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import onebasin
from onebasin._factory import EXPECTED, load_model
from onebasin.cli.messages import fail, working


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


def demo(
    out: Annotated[
        Path, typer.Option(help="The folder for the picture; made if it is not there.")
    ] = Path("onebasin-demo"),
    seed: Annotated[
        int, typer.Option(min=0, help="For the parameters and the random elements.")
    ] = 0,
) -> None:
    """Find, print and prove the symmetry groups of the built-in networks, and draw one picture.

    Example: `onebasin demo --out onebasin-demo`
    """
    from onebasin import _demo

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(
            f"Got --out {out}, and no folder can be made there ({error.strerror}): "
            "name a folder that you may write to."
        )
    with working("Proving the groups of the built-in networks", spinner=False):
        _demo.run(out, seed, Console())
