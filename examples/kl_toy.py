"""Two Gaussians mirrored about y = x: which costs see that one is the other with units swapped?

    python examples/kl_toy.py [kl_toy.png]

A layer of two units with one weight each. The posteriors have the same mean on the diagonal, and
spreads (0.3, 1.2) and (1.2, 0.3). Wasserstein and the full Kullback-Leibler divergence, either way
round, find the swap; the divergence of the means alone, as it was once printed, cannot.
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import onebasin as ob

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COSTS = {
    "wasserstein": "Wasserstein",
    "kl-forward": "KL, forward",
    "kl-reverse": "KL, reverse",
    "kl-mean": "KL of the means only",
}


def model(params: Any, x: jax.Array) -> jax.Array:
    """Two units, one weight each."""
    return jnp.sum(jax.nn.relu(params["w"] * x), axis=-1, keepdims=True)


def gaussian(*std: float) -> ob.Gaussian:
    """A posterior with its mean on the diagonal."""
    return ob.Gaussian({"w": jnp.ones(2)}, {"w": jnp.array(std)})


def ellipse(posterior: ob.Gaussian) -> tuple[np.ndarray, np.ndarray]:
    """The points one standard deviation from the mean."""
    angle = np.linspace(0, 2 * np.pi, 200)
    mean, std = np.asarray(posterior.mean["w"]), np.asarray(posterior.std["w"])
    return mean[0] + std[0] * np.cos(angle), mean[1] + std[1] * np.sin(angle)


def main() -> None:
    """Aligns with each cost and draws what comes out."""
    out = sys.argv[1] if len(sys.argv) > 1 else "kl_toy.png"
    symmetry = ob.discover(model, {"w": jnp.ones(2)}, jnp.ones((3, 1)))
    reference, moving = gaussian(0.3, 1.2), gaussian(1.2, 0.3)
    figure, axes = plt.subplots(
        1, len(COSTS), figsize=(12, 4.4), sharex=True, sharey=True, layout="constrained"
    )
    for axis, (cost, title) in zip(axes, COSTS.items(), strict=True):
        found = ob.align(symmetry, moving, to=reference, cost=cost)
        swapped = found.num_transpositions == 1
        print(f"{title:22s} {'swap found' if swapped else 'swap missed'}, cost {found.cost:.3g}")
        axis.plot([-0.5, 2.5], [-0.5, 2.5], color="0.8", linewidth=1)
        axis.plot(*ellipse(reference), color="black", linewidth=2.5, label="reference")
        axis.plot(*ellipse(moving), color="0.55", linestyle=":", label="before")
        axis.plot(*ellipse(found.params), color="tab:orange", linestyle="--", label="aligned")
        axis.set_title(f"{title}\n{'swap found' if swapped else 'swap missed'}")
        axis.set_xlabel("weight of unit 1")
        axis.set_aspect("equal")
    axes[0].set_ylabel("weight of unit 2")
    axes[0].legend(loc="upper right", fontsize="small")
    figure.suptitle("Which costs see a swap of two units that differ in their spread only?")
    figure.savefig(out, dpi=150)


if __name__ == "__main__":
    main()
