"""The pictures of the theory page: `python docs/pictures.py` draws them into docs/images."""

from __future__ import annotations

import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyArrowPatch

import onebasin as ob
from onebasin.studies import sections

ROOT = pathlib.Path(__file__).parent
BLUE, ORANGE, GREY = "#2f6db3", "#d9762b", "#6f7680"
PLAIN: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "savefig.facecolor": "white",
}


def apply(params: dict[str, jax.Array], inputs: jax.Array) -> jax.Array:
    """Two hidden units of one weight in and one weight out each."""
    return jax.nn.relu(inputs @ params["in"]) @ params["out"]


def arrow(axes: Any, start: Any, end: Any, color: str, **more: Any) -> None:
    """An arrow from point to point."""
    style = {"arrowstyle": "-|>", "mutation_scale": 11, "lw": 1.2, "shrinkA": 5, "shrinkB": 5}
    axes.add_patch(FancyArrowPatch(start, end, color=color, **{**style, **more}))


def scaling(path: pathlib.Path) -> None:
    """The same two units in two networks, before and after scalings are removed."""
    first = {"in": jnp.array([[1.9, 0.9]]), "out": jnp.array([[0.42], [2.0]])}
    second = {"in": jnp.array([[0.35, 2.6]]), "out": jnp.array([[2.25], [0.7]])}
    symmetry = ob.discover(apply, first, jnp.ones((2, 1)))
    least = [ob.canonicalize(symmetry, p, scaling="min-mass", order=None) for p in (first, second)]

    def points(params: Any) -> np.ndarray:
        return np.stack([np.ravel(params["in"]), np.ravel(params["out"])], axis=1)

    figure, both = plt.subplots(1, 2, figsize=(8.4, 3.7), sharex=True, sharey=True)
    grid = np.linspace(0.2, 3.2, 400)
    titles = "as trained: the nearest unit is the other one", "least mass: each meets itself"
    for axes, pair, title in zip(both, ((first, second), least), titles, strict=True):
        a, b = (points(p) for p in pair)
        for unit, color in enumerate((BLUE, ORANGE)):
            product = points(first)[unit].prod()
            axes.plot(grid, product / grid, color=color, lw=0.8, alpha=0.5)
            axes.plot(*a[unit], "o", color=color, ms=9)
            axes.plot(*b[unit], "s", color=color, ms=9, mfc="white", mew=1.8)
        distance = np.linalg.norm(a[:, None] - b[None], axis=-1)
        for unit, other in enumerate(distance.argmin(axis=1)):
            if distance[unit, other] > 0.15:
                arrow(axes, a[unit], b[other], GREY, linestyle="--")
        axes.set(title=title, xlabel="weight into the unit", xlim=(0, 3.2), ylim=(0, 3.2))
        axes.set_aspect("equal")
    both[0].set_ylabel("weight out of the unit")
    both[1].plot([0, 3.2], [0, 3.2], color=GREY, lw=0.8, ls=":")
    both[0].plot([], [], "o", color=GREY, label="first network")
    both[0].plot([], [], "s", color=GREY, mfc="white", mew=1.8, label="second network")
    both[0].legend(frameon=False, loc="upper right")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def transpositions(path: pathlib.Path) -> None:
    """A permutation of eight units as cycles, and what they count."""
    permutation = np.array([3, 0, 2, 1, 5, 4, 6, 7])
    count = int(ob.transpositions(permutation))
    figure, axes = plt.subplots(figsize=(8.4, 2.3))
    at = 0.0
    left = set(range(len(permutation)))
    while left:
        cycle = [min(left)]
        while permutation[cycle[-1]] != cycle[0]:
            cycle.append(int(permutation[cycle[-1]]))
        left -= set(cycle)
        size = len(cycle)
        radius = 0.0 if size == 1 else 0.42
        at += radius
        angles = np.pi / 2 + 2 * np.pi * np.arange(size) / size
        places = np.stack([at + radius * np.cos(angles), radius * np.sin(angles)], axis=1)
        color = GREY if size == 1 else BLUE
        for unit, place in zip(cycle, places, strict=True):
            axes.plot(*place, "o", ms=20, color="white", mec=color, mew=1.5, zorder=2)
            axes.text(place[0], place[1], str(unit + 1), ha="center", va="center", zorder=3)
        if size > 1:
            for start, end in zip(places, np.roll(places, -1, axis=0), strict=True):
                bend = "arc3,rad=-0.35" if size == 2 else "arc3,rad=0.12"
                arrow(axes, start, end, color, connectionstyle=bend, shrinkA=11, shrinkB=11)
        swaps = f"{size - 1} swap" + ("" if size == 2 else "s")
        axes.text(at, -0.85, swaps, ha="center", color=color)
        at += radius + 0.85
    axes.set(xlim=(-0.3, at - 0.5), ylim=(-1.05, 0.8), title=f"8 units, 5 cycles: NoT = {count}")
    axes.set_aspect("equal")
    axes.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def floor(path: pathlib.Path, run: pathlib.Path) -> None:
    """Total variation to a chain that was left out, of what was made from the others."""
    table = sections(run)["left-out"].table("left-out")
    rows = sorted(table.rows, key=lambda row: row.cells["tv"].value or 0.0)
    figure, axes = plt.subplots(figsize=(8.4, 0.42 * len(rows) + 0.9))
    for place, row in enumerate(rows[::-1]):
        cell = row.cells["tv"]
        color = ORANGE if row.emphasis else BLUE if "chain" in row.label else GREY
        value, low, high = (float(x or 0) for x in (cell.value, cell.low, cell.high))
        axes.barh(place, value, color=color, height=0.62)
        axes.errorbar(
            value, place, xerr=[[value - low], [high - value]], color="black", lw=1, capsize=2
        )
        axes.text(high, place, f"  {value:.4f}", va="center")
    least = next(r.cells["tv"].value for r in rows if r.label == "remaining chains")
    axes.axvline(least, color=BLUE, lw=0.9, ls=":")
    axes.set_yticks(range(len(rows)), [row.label for row in rows[::-1]])
    axes.set_xlabel("total variation to the chain left out (digits, 95 % intervals)")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    """Draws all pictures."""
    images = ROOT / "images"
    with plt.rc_context(PLAIN):
        scaling(images / "scaling.png")
        transpositions(images / "transpositions.png")
        floor(images / "floor.png", ROOT.parent / "results" / "compact-digits")


if __name__ == "__main__":
    main()
