"""`onebasin barrier`: the loss on the way from one network to another."""

from pathlib import Path
from typing import Annotated, Any

import typer

import onebasin
from onebasin._factory import load_model
from onebasin.cli.data import LABELLED, load_labelled
from onebasin.cli.messages import print_json, working
from onebasin.cli.networks import (
    JsonOption,
    ModelOption,
    SeedOption,
    certificate,
    check_file,
    read_network,
)


def barrier(
    moving: Annotated[
        Path,
        typer.Argument(metavar="A", help="The network at t = 0, which is the one that is moved."),
    ],
    reference: Annotated[
        Path, typer.Argument(metavar="B", help="The network at t = 1, which stays where it is.")
    ],
    *,
    model: ModelOption,
    data: Annotated[
        str,
        typer.Option(
            metavar="MODULE:LOADER",
            help="The data: a function without arguments, as my_data:loader or "
            f"path/to/file.py:loader, that returns {LABELLED}; labels are integers.",
        ),
    ],
    points: Annotated[int, typer.Option(min=2, help="Points on the way, with both ends.")] = 11,
    align: Annotated[
        bool, typer.Option(help="Also after A was moved onto B, matching weights.")
    ] = True,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Measure loss and error on the straight line from the network A to the network B.

    A barrier is how far the curve rises above the chord between its ends. It is shown as the files
    are, and after A was moved onto B by a symmetry that leaves its function alone. Under it stands
    what is left of it at the best temperature of each point: a barrier that vanishes there is one
    of confidence, not of function. To match by something else than weights, move A with
    `onebasin align` and use --no-align here.

    Example: `onebasin barrier onebasin-demo/a.safetensors onebasin-demo/b.safetensors
    --model examples/digits.py:factory --data examples/digits.py:loader`
    """
    with working(f"Reading {model}", as_json):
        for path in (moving, reference):
            check_file(path)
        loaded = load_model(model, seed)
        a, b = (read_network(path, loaded, "an end") for path in (moving, reference))
        loss = _loss(loaded.apply_fn, load_labelled(data, loaded))
        symmetry = onebasin.discover(*loaded) if align else None
    with working(f"Walking from {moving} to {reference}", as_json):
        curves = {"before": onebasin.barrier(loss, a, b, points, calibrate=True)}
        alignment = None
        if symmetry is not None:
            alignment = onebasin.align(symmetry, a, to=b, seed=seed)
            curves["after"] = onebasin.barrier(loss, alignment.params, b, points, calibrate=True)
        text = _table(curves)
    if as_json:
        print_json(
            {
                "moved": str(moving),
                "reference": str(reference),
                "t": curves["before"].t,
                **{when: _numbers(found) for when, found in curves.items()},
                "alignment": None if alignment is None else certificate(alignment),
            }
        )
        return
    typer.echo(text)


def _numbers(found: onebasin.Barrier) -> dict[str, Any]:
    """A barrier for scripts, with what is left of it after calibration beside it."""
    assert found.calibrated is not None
    return {
        "curve": found.curve,
        "height": found.height,
        "calibrated": {"curve": found.calibrated.curve, "height": found.calibrated.height},
        "temperature": found.temperature,
    }


def _loss(apply_fn: Any, pairs: list[tuple[Any, Any]]) -> Any:
    if len(pairs) == 1:
        return onebasin.marginal_loss(apply_fn, *pairs[0])
    return onebasin.losses(apply_fn, *pairs)


def _table(curves: dict[str, onebasin.Barrier]) -> str:
    """A line for each point, one for the barriers and one for those after calibration.

    For each curve there are loss and error on each set; calibration leaves errors as they are.
    """
    left = ["t", *(f"{t:.2f}" for t in curves["before"].t.tolist()), "barrier", "calib."]
    lines = [" " * 7, " " * 7, *(cell.rjust(7) for cell in left)]
    for when, found in curves.items():
        blocks = [
            _columns(found, part)
            for part in ("train ", "test ", "")
            if f"{part}loss" in found.curve
        ]
        rows = ["  ".join(cells) for cells in zip(*blocks, strict=True)]
        title = f"{when} alignment" if len(curves) > 1 else ""
        rows = [title.ljust(len(rows[0])), *rows]
        lines = [f"{line}   {row}" for line, row in zip(lines, rows, strict=True)]
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _columns(found: onebasin.Barrier, part: str) -> list[str]:
    """Loss and error on one set of data, under its name."""
    assert found.calibrated is not None
    columns = []
    for measure in ("loss", "error"):
        values = [*found.curve[part + measure].tolist(), float(found.height[part + measure])]
        left = f"{float(found.calibrated.height[part + measure]):.4f}" if measure == "loss" else ""
        cells = [measure, *(f"{value:.4f}" for value in values), left]
        width = max(map(len, cells))
        columns.append([cell.rjust(width) for cell in cells])
    rows = ["  ".join(cells) for cells in zip(*columns, strict=True)]
    return [part.strip().ljust(len(rows[0])), *rows]
