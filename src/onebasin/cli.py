"""The command line: `onebasin COMMAND --help` shows an example of each command."""

import contextlib
import importlib.metadata
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from onebasin._factory import FactoryError, load_model, one_line

BAD_INPUT = 2
OWN_FAULT = 1

app = typer.Typer(
    name="onebasin",
    help="Bayesian neural network posteriors, modulo symmetry.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
)


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


@app.command()
def symmetries(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FACTORY",
            help="A function without arguments, as my_models:factory or path/to/file.py:factory. "
            "It returns (apply_fn, params, inputs), or (net, inputs) where net has "
            ".init(key, inputs) and .apply(params, inputs).",
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
    with _plain_messages(), _waiting(f"Reading the symmetries of {model}"):
        try:
            apply_fn, params, inputs = load_model(model, seed)
        except FactoryError as error:
            _fail(str(error))
        symmetry, deviation = _discover(model, apply_fn, params, inputs, seed)
    if as_json:
        typer.echo(symmetry.to_json())
        return
    typer.echo(str(symmetry))
    typer.echo(f"Verified: random elements change the outputs by {deviation:.0e} of the largest.")


@app.command()
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
        _fail(
            f"Got --out {out}, and no folder can be made there ({error.strerror}): "
            "name a folder that you may write to."
        )
    with _plain_messages():
        _demo.run(out, seed, Console())


def _discover(name: str, apply_fn: Any, params: Any, inputs: Any, seed: int) -> tuple[Any, float]:
    import onebasin

    try:
        symmetry = onebasin.discover(apply_fn, params, inputs)
        deviation = onebasin.check_symmetry(symmetry, apply_fn, params, inputs, seed=seed)
    except onebasin.SymmetryError as error:
        _fail(" ".join(str(error).split()))
    except Exception as error:
        _fail(
            f"Reading the symmetries of {name} stopped with {one_line(error)}; if "
            "apply_fn(params, inputs) runs by itself, this is a fault of onebasin: call "
            "onebasin.discover in Python for the full traceback, and report it",
            code=OWN_FAULT,
        )
    return symmetry, deviation


def _fail(sentence: str, code: int = BAD_INPUT) -> NoReturn:
    stop = "" if sentence.endswith((".", "?", "!")) else "."
    typer.echo(f"onebasin: {sentence[0].upper()}{sentence[1:]}{stop}", err=True)
    raise typer.Exit(code)


@contextlib.contextmanager
def _waiting(message: str) -> Iterator[None]:
    console = Console(stderr=True)
    with console.status(message) if console.is_terminal else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def _plain_messages() -> Iterator[None]:
    """Show a warning as one sentence, without the line of code that gave it."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"onebasin: warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
