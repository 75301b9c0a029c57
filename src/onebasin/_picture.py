"""A picture of what a group is: all copies of a tiny network, and the one function they compute."""

import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import onebasin
from onebasin._core.files import replacing


def _tiny_apply(params: dict[str, jax.Array], inputs: jax.Array) -> jax.Array:
    return jnp.tanh(inputs @ params["incoming"]) @ params["outgoing"]


def draw(path: Path) -> Path:
    r"""Draw every copy of a network with two hidden units, and the one function they compute.

    The network is \(f(x) = v_1 \tanh(w_1 x) + v_2 \tanh(w_2 x)\). Its outgoing weights \(v\) are
    fitted exactly for each \((w_1, w_2)\), so that the loss is a landscape over a plane.

    Args:
        path: the PNG file to write.

    Returns:
        The same path.
    """
    inputs = np.linspace(-2.0, 2.0, 41)
    rng = np.random.default_rng(0)
    targets = 1.5 * np.tanh(2.6 * inputs) - 1.2 * np.tanh(0.7 * inputs)
    targets = targets + 0.03 * rng.standard_normal(inputs.shape)

    axis = np.linspace(-4.0, 4.0, 161)
    loss, outgoing = _profile(axis, inputs, targets)
    row, column = np.unravel_index(np.argmin(loss), loss.shape)
    params = {
        "incoming": jnp.asarray([[axis[column], axis[row]]], jnp.float32),
        "outgoing": jnp.asarray(outgoing[row, column][:, None], jnp.float32),
    }
    copies = _all_copies(params, jnp.asarray(inputs, jnp.float32)[:, None])
    _paint(path, axis, loss, copies, inputs, targets)
    return path


def _profile(
    axis: np.ndarray, inputs: np.ndarray, targets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the loss at each (w2, w1), and the outgoing weights that attain it."""
    features = np.tanh(axis[:, None] * inputs)
    first, second = np.broadcast_arrays(features[None, :, :], features[:, None, :])
    design = np.stack([first, second], axis=-1)
    # A ridge, for the lines where the two units are the same or one is silent.
    gram = np.einsum("...ni,...nj->...ij", design, design) + 1e-3 * np.eye(2)
    projection = np.einsum("...ni,n->...i", design, targets)
    outgoing = np.linalg.solve(gram, projection[..., None])[..., 0]
    residual = np.einsum("...ni,...i->...n", design, outgoing) - targets
    return np.mean(residual**2, axis=-1), outgoing


def _all_copies(params: dict[str, jax.Array], inputs: jax.Array) -> list[dict[str, jax.Array]]:
    """Act on a network with random elements until every copy has been met."""
    symmetry = onebasin.discover(_tiny_apply, params, inputs)
    total = round(math.exp(symmetry.log_copies()))
    met: dict[tuple[float, ...], dict[str, jax.Array]] = {}
    for key in jax.random.split(jax.random.key(0), 50 * total):
        copy = symmetry.act(symmetry.random(key), params)
        met.setdefault(tuple(np.asarray(copy["incoming"]).ravel().tolist()), copy)
        if len(met) == total:
            break
    return list(met.values())


def _paint(
    path: Path,
    axis: np.ndarray,
    loss: np.ndarray,
    copies: list[dict[str, jax.Array]],
    inputs: np.ndarray,
    targets: np.ndarray,
) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5), layout="constrained")
    left, right = figure.subplots(1, 2)

    count = len(copies)
    levels = np.geomspace(loss.min(), loss.max(), 25)
    shading = left.contourf(axis, axis, loss, levels=levels, cmap="Greys", norm="log")
    colorbar = figure.colorbar(shading, ax=left, ticks=[0.001, 0.01, 0.1], format="%g")
    colorbar.set_label("mean squared error, outgoing weights fitted")
    edge = axis[-1]
    sector = "one sector: one copy of every network"
    left.fill([0, edge, edge], [0, 0, edge], facecolor="C1", alpha=0.15)
    left.plot([edge, 0, edge], [0, 0, edge], color="C1", lw=2, label=sector)
    weights = np.stack([np.asarray(copy["incoming"]).ravel() for copy in copies])
    left.plot(*weights.T, "o", ms=9, mfc="C0", mec="white", label="copies of one network")
    left.set(
        title=f"{count} points in weight space, {count} basins of the loss",
        xlabel="incoming weight of unit 1",
        ylabel="incoming weight of unit 2",
        xlim=(-edge, edge),
        ylim=(-edge, edge),
        aspect="equal",
    )
    left.legend(loc="lower left", fontsize="small")

    grid = jnp.linspace(inputs[0], inputs[-1], 200)[:, None]
    for index, copy in enumerate(copies):
        right.plot(
            grid[:, 0],
            _tiny_apply(copy, grid)[:, 0],
            color="C0",
            lw=1 + 6 * (1 - index / count),
            alpha=0.35,
            label=f"the outputs of all {count} copies" if index == 0 else None,
        )
    right.plot(inputs, targets, ".", color="black", ms=4, label="data")
    right.set(title="One function", xlabel="input", ylabel="output")
    right.legend(loc="upper left", fontsize="small")
    figure.suptitle("A network with two hidden tanh units, and its copies under symmetry")
    with replacing(path) as file:
        figure.savefig(file, dpi=150, format=path.suffix.removeprefix(".") or "png")
