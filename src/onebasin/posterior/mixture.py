"""A mixture of Gaussians: several modes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.posterior import trees
from onebasin.posterior.draws import Draws
from onebasin.posterior.gaussian import Gaussian
from onebasin.symmetry.keys import check_key


@trees.pytree
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Mixture:
    """A mixture sum_k w_k N_k of Gaussians over the parameters of one model.

    Args:
        components: The Gaussians; their ranks may differ.
        weights: Probabilities of the components, (component,); equal by default.
        info: What is known of the run that made it; a dictionary that computations leave behind.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from onebasin.posterior import Gaussian, Mixture
        >>> left, right = Gaussian(-jnp.ones(2), 0.1), Gaussian(jnp.ones(2), 0.1)
        >>> mixture = Mixture([left, right], [0.25, 0.75])
        >>> mixture
        Mixture(2 components of 2 weights)
        >>> draws = mixture.sample(jax.random.key(0), 100)
        >>> draws.modes
        (0, 1)
    """

    components: Sequence[Gaussian]
    weights: Any = None
    info: Any = dataclasses.field(default=None, metadata=trees.RECORD)

    def __post_init__(self) -> None:
        if isinstance(self.components, Gaussian):
            raise TypeError("the components are one Gaussian, expected a list of them: pass [q]")
        components = tuple(self.components)
        if not components:
            raise ValueError("a mixture needs at least one component; pass Gaussians")
        for number, component in enumerate(components):
            if not isinstance(component, Gaussian):
                raise TypeError(
                    f"component {number} is a {type(component).__name__}, expected a Gaussian; fit "
                    "one to draws with moments"
                )
            trees.check_same(
                components[0].mean, component.mean, "component 0", f"component {number}"
            )
        weights = self.weights
        if weights is None:
            weights = np.full(len(components), 1 / len(components), np.float32)
        if np.shape(weights) != (len(components),):
            raise ValueError(
                f"weights have shape {np.shape(weights)}, expected ({len(components)},): one per "
                "component"
            )
        if not isinstance(weights, jax.core.Tracer):
            values = np.asarray(weights)
            if not (np.all(values >= 0) and abs(values.sum() - 1) < 1e-4):
                raise ValueError(
                    f"weights are {values.tolist()}, expected probabilities that sum to one; "
                    "divide them by their sum"
                )
        object.__setattr__(self, "components", components)
        object.__setattr__(self, "weights", jnp.asarray(weights))

    def draw(self, key: jax.Array) -> Any:
        """One parameter tree drawn from the mixture."""
        check_key(key)
        return _draw(self, key)[0]

    def sample(self, key: jax.Array, n: int) -> Draws:
        """Draws n parameter trees; `mode` says which component each came from."""
        if n < 1:
            raise ValueError(f"got n={n} samples, expected at least one")
        check_key(key)
        return Draws(*_sample(self, key, n))

    def log_density(self, params: Any) -> jax.Array:
        """Log density in nats: log sum_k w_k N_k(x).

        Args:
            params: A parameter tree, or `Draws` for one density each.

        Returns:
            A scalar, or an array (draw,).
        """
        parts = jnp.stack([component.log_density(params) for component in self.components], -1)
        return jax.nn.logsumexp(parts + jnp.log(self.weights), axis=-1)

    def check_finite(self) -> Mixture:
        """This mixture, after checking every component."""
        for component in self.components:
            component.check_finite()
        return self

    def __repr__(self) -> str:
        size = trees.num_weights(self.components[0].mean)
        count = len(self.components)
        return f"Mixture({count} component{'s' * (count != 1)} of {size:,} weights)"


@jax.jit
def _draw(q: Mixture, key: jax.Array) -> tuple[Any, jax.Array]:
    which_key, key = jax.random.split(key)
    which = jax.random.categorical(which_key, jnp.log(q.weights))
    branches = [component.draw for component in q.components]
    return jax.lax.switch(which, branches, key), which.astype(jnp.int32)


@functools.partial(jax.jit, static_argnames="n")
def _sample(q: Mixture, key: jax.Array, n: int) -> tuple[Any, jax.Array]:
    # One after the other: under vmap every draw would be drawn from every component.
    return jax.lax.map(functools.partial(_draw, q), jax.random.split(key, n))
