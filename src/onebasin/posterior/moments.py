"""From any form to its mean and standard deviations."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from onebasin.posterior import trees
from onebasin.posterior.draws import Draws
from onebasin.posterior.gaussian import Gaussian
from onebasin.posterior.mixture import Mixture


def moments(posterior: Draws | Gaussian | Mixture) -> Gaussian:
    """The diagonal Gaussian with the mean and the variances of a posterior.

    Draws: sample mean and standard deviation (divisor n - 1). Mixture: mean m = sum_k w_k m_k and
    variance sum_k w_k (v_k + (m_k - m)^2). Gaussian: its low-rank part goes into the diagonal.

    Args:
        posterior: `Draws` (at least two), a `Gaussian` or a `Mixture`.

    Returns:
        A diagonal `Gaussian`.

    Example:
        >>> import jax.numpy as jnp
        >>> from onebasin.posterior import Draws, moments
        >>> q = moments(Draws(jnp.array([[0.0, 1.0], [2.0, 5.0], [4.0, 9.0]])))
        >>> q.mean.tolist(), q.std.tolist()
        ([2.0, 5.0], [2.0, 4.0])
    """
    if isinstance(posterior, Draws):
        trees.check_floats(posterior.params, "the draws")
        return Gaussian(posterior.mean(), posterior.std())
    if isinstance(posterior, Gaussian):
        return Gaussian(posterior.mean, jax.tree.map(jnp.sqrt, posterior.variance()))
    if isinstance(posterior, Mixture):
        return _of_mixture(posterior)
    raise TypeError(
        f"got a {type(posterior).__name__}, expected Draws, a Gaussian or a Mixture; stack "
        "networks with Draws.stack"
    )


@jax.jit
def _of_mixture(q: Mixture) -> Gaussian:
    def average(*leaves: jax.Array) -> jax.Array:
        return jnp.tensordot(q.weights.astype(leaves[0].dtype), jnp.stack(leaves), 1)

    mean = jax.tree.map(average, *(c.mean for c in q.components))
    spread = [
        jax.tree.map(lambda v, a, b: v + (a - b) ** 2, c.variance(), c.mean, mean)
        for c in q.components
    ]
    return Gaussian(mean, jax.tree.map(lambda *v: jnp.sqrt(average(*v)), *spread))
