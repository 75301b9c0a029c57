"""`onebasin align`: networks in files, moved into one basin."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import jax
import typer

import onebasin
from onebasin._core.files import check_own_folder
from onebasin._factory import Model, load_model
from onebasin.align.checks import GAUSSIAN_ONLY, check_choice
from onebasin.align.match import DATA_COSTS
from onebasin.cli.data import load_inputs
from onebasin.cli.messages import bar, print_json, warn, working
from onebasin.cli.networks import (
    JsonOption,
    ModelOption,
    SeedOption,
    certificate,
    check_file,
    check_out,
    read_network,
    read_networks,
    save_network,
)
from onebasin.engine import Engine, open_engine
from onebasin.store import save_params

COSTS = ("weights", *DATA_COSTS)
SCALINGS = ("auto", "min-mass", "unit-norm", "none")


def align(
    moving: Annotated[
        Path, typer.Argument(metavar="A", help="What is moved: one network, or stacked draws.")
    ],
    reference: Annotated[
        Path | None,
        typer.Argument(
            metavar="B",
            help="The reference, which stays where it is: one network. Stacked draws can do "
            "without it, and are then aligned to their common mean.",
        ),
    ] = None,
    *,
    model: ModelOption,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="C",
            help="The file for what was moved; replaced if it exists. Without it nothing is "
            "written.",
        ),
    ] = None,
    cost: Annotated[
        str, typer.Option(metavar="NAME", help=f"What is matched: {', '.join(COSTS)}.")
    ] = "weights",
    scaling: Annotated[
        str,
        typer.Option(
            metavar="|".join(SCALINGS),
            help="How scalings are removed before units are matched; auto does so where scales "
            "keep two networks apart, and for stacked draws.",
        ),
    ] = "auto",
    data: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:LOADER",
            help="Inputs for the costs that look at the network at work (all but weights): a "
            "function without arguments that returns them, alone or with labels. Without it they "
            "look at the inputs of the factory.",
        ),
    ] = None,
    restarts: Annotated[
        int, typer.Option(min=0, help="Further random starts of the search, for one network.")
    ] = 0,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="local|ray",
            help="Align stacked draws in blocks, as tasks of this process or of a cluster: both "
            "give the same, and the same command goes on where it was stopped. Without it they "
            "are aligned here, all at once.",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Of a running Ray cluster, or auto, which must see the folder of --out; without "
            "it --engine ray starts a private one on this machine.",
        ),
    ] = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Move the network A onto the network B, by a symmetry that leaves its function alone.

    What was moved is written to --out, if given, and its certificate printed: the cost before and
    after, and for each factor the swaps and the least margin of a match over the next best. Files
    are safetensors, with tensors named by their path in the parameter tree, as Dense_0/kernel; of
    PyTorch modules they are state dicts, and .pt files with nothing but tensors are read too.

    Example: `onebasin align onebasin-demo/a.safetensors onebasin-demo/b.safetensors
    --model examples/digits.py:factory --out onebasin-demo/c.safetensors`
    """
    with contextlib.ExitStack() as opened:
        with working(f"Reading {model}", as_json):
            _check_names(cost, scaling)
            files = [moving] if reference is None else [moving, reference]
            for path in files:
                check_file(path)
            if out is not None:
                check_out(out, files)
            tasks = opened.enter_context(_tasks(engine, address, out))
            loaded = load_model(model, seed)
            networks = read_networks(moving, loaded)
            target = read_network(reference, loaded, "the reference") if reference else None
            many = isinstance(networks, onebasin.Draws)
            if target is None and not many:
                raise ValueError(
                    f"the file {moving} holds one network and there is no reference: name a second "
                    "file, to which it is moved"
                )
            if many and restarts:
                raise ValueError(
                    f"got --restarts {restarts}, and {moving} holds stacked draws, which are "
                    "aligned in rounds: leave it out"
                )
            if not many and tasks is not None:
                raise ValueError(
                    f"got --engine {engine}, and {moving} holds one network: it is for stacked "
                    "draws, leave it out"
                )
            options: dict[str, Any] = {
                "cost": cost,
                "scaling": _scaling(scaling, many),
                "seed": seed,
                **_at_work(cost, data, loaded),
            }
            symmetry = onebasin.discover(*loaded)
            if not symmetry.factors:
                raise ValueError(
                    f"no weight change leaves the function of {model} alone: there is nothing to "
                    "align"
                )
        with working(f"Aligning {moving}", as_json, spinner=not many):
            if many:
                text, fields = _align_draws(symmetry, networks, target, out, tasks, options)
            else:
                options["restarts"] = restarts
                text, fields = _align_network(symmetry, networks, target, out, loaded, options)
    if as_json:
        to = str(reference) if reference else "mean"
        written = None if out is None else str(out)
        print_json({"moved": str(moving), "reference": to, "out": written, **fields})
        return
    typer.echo(text)
    if out is None:
        typer.echo("Nothing was written: --out FILE keeps what was moved.")
    else:
        typer.echo(f"Wrote {out}.")


def _align_network(
    symmetry: onebasin.Symmetry,
    network: Any,
    target: Any,
    out: Path | None,
    model: Model,
    options: dict[str, Any],
) -> tuple[str, dict[str, Any]]:
    found = onebasin.align(symmetry, network, to=target, **options)
    if out is not None:
        save_network(out, found.params, model)
    return str(found), certificate(found)


def _align_draws(
    symmetry: onebasin.Symmetry,
    draws: onebasin.Draws,
    target: Any,
    out: Path | None,
    tasks: Engine | None,
    options: dict[str, Any],
) -> tuple[str, dict[str, Any]]:
    reference = "mean" if target is None else target
    with bar("Removing scalings") as progress:
        found = onebasin.align_many(
            symmetry, draws, reference=reference, progress=progress, engine=tasks, **options
        )
    if out is not None:
        save_params(out, found.draws)
    fields = {
        "cost_name": found.cost_name,
        "draws": len(draws),
        "history": found.history,
        "moved_in_round": found.moved,
    }
    return str(found), fields


@contextlib.contextmanager
def _tasks(engine: str | None, address: str | None, out: Path | None) -> Iterator[Engine | None]:
    """The engine, with a folder beside the result: it goes when that is there, or nothing is."""
    if engine is None:
        if address is not None:
            raise ValueError(f"got --address {address}, expected it with --engine ray")
        yield None
        return
    if out is None:
        raise ValueError(
            f"got --engine {engine} without --out, and its tasks keep their files beside that: "
            "give --out FILE, or leave --engine out"
        )
    folder = check_own_folder(out.with_name(f".{out.name}.tasks"))
    retries = 0 if engine == "local" else 2
    ended = False
    try:
        with open_engine(engine, directory=folder, address=address, retries=retries) as opened:
            yield opened
        ended = True
    finally:
        if ended or not (folder / "align").is_dir():
            shutil.rmtree(folder, ignore_errors=True)


def _scaling(name: str, many: bool) -> str | None:
    """What the functions call it; those of draws are always removed unless they are to be left."""
    if name == "auto" and many:
        return "min-mass"
    return None if name == "none" else name


def _check_names(cost: str, scaling: str) -> None:
    if cost in GAUSSIAN_ONLY:
        raise ValueError(
            f"cost {cost!r} compares distributions, and files hold networks: use --cost weights, "
            "or onebasin.align in Python with two onebasin.Gaussian"
        )
    check_choice("cost", cost, COSTS)
    check_choice("scaling", scaling, SCALINGS)


def _at_work(cost: str, data: str | None, model: Model) -> dict[str, Any]:
    """The model and inputs for costs that look at the network at work."""
    if cost not in DATA_COSTS:
        if data is not None:
            warn(f"the cost {cost!r} does not look at --data.")
        return {}
    if data is not None:
        return {"apply_fn": model.apply_fn, "inputs": load_inputs(data, model)}
    examples = jax.tree.leaves(model.inputs)
    if any(isinstance(x, jax.ShapeDtypeStruct) for x in examples):
        raise ValueError(
            f"cost {cost!r} looks at the network at work, and the factory gives only the shape of "
            "its inputs: pass --data MODULE:LOADER (some hundred training inputs will do)"
        )
    warn(
        f"the cost {cost!r} looks at the {len(examples[0])} inputs of the factory: pass --data "
        "MODULE:LOADER for some hundred of the training inputs."
    )
    return {"apply_fn": model.apply_fn, "inputs": model.inputs}
