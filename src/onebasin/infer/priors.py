"""Priors over parameters: independent weights, one scale for all or one per layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.posterior.trees import is_float, named_leaves

Scale = float | Mapping[str, float]


@dataclasses.dataclass(frozen=True, eq=False)
class Prior:
    """Independent weights w = scale * z; what z is, a subclass says.

    Integer leaves (counters) have no prior and stay as they are.

    Args:
        scale: One number for all weights, or numbers by path: the longest of the given paths that
            a leaf's path starts with counts, and "" stands for all others.
    """

    scale: Any = 1.0

    def __post_init__(self) -> None:
        scales = self.scale.values() if isinstance(self.scale, Mapping) else [self.scale]
        for scale in scales:
            if isinstance(scale, int | float | np.number) and not (0 < scale < np.inf):
                raise ValueError(f"got a prior of scale {scale}, expected a positive number")

    def scales(self, params: Any) -> Any:
        """The scale of each leaf, in the structure of the parameters."""
        return jax.tree.unflatten(
            jax.tree.structure(params), [self._scale(name) for name, _ in named_leaves(params)]
        )

    def log_density(self, params: Any) -> jax.Array:
        """Log density in nats of one network."""
        return sum(
            (
                jnp.sum(self._log_unit(x / scale)) - x.size * jnp.log(scale)
                for x, scale in self._weighted(params)
            ),
            jnp.zeros(()),
        )

    def sample(self, key: jax.Array, params: Any) -> Any:
        """A network drawn from the prior; of `params` only shapes and types matter."""
        leaves, structure = jax.tree.flatten(params)
        scales = jax.tree.leaves(self.scales(params))
        keys = jax.random.split(key, len(leaves))
        drawn = [
            scale * self._sample_unit(k, x.shape).astype(x.dtype) if is_float(x) else x
            for k, x, scale in zip(keys, leaves, scales, strict=True)
        ]
        return jax.tree.unflatten(structure, drawn)

    def spread(self, params: Any) -> Any:
        """The standard deviation of every leaf's weights; the scale where that is infinite."""
        return jax.tree.map(lambda scale: scale * self._unit_std(), self.scales(params))

    def expected_log_density(self, key: jax.Array, mean: Any, std: Any) -> jax.Array:
        """E[log p(w)] for w ~ N(mean, std^2): in closed form, or by one draw."""
        parts = []
        for number, ((m, scale), s) in enumerate(
            zip(self._weighted(mean), _floats(std), strict=True)
        ):
            own = jax.random.fold_in(key, number)
            unit = self._expected_unit(own, m / scale, s / scale)
            parts.append(jnp.sum(unit) - m.size * jnp.log(scale))
        return sum(parts, jnp.zeros(()))

    def _weighted(self, params: Any) -> list[tuple[Any, Any]]:
        return [(x, self._scale(name)) for name, x in named_leaves(params) if is_float(x)]

    def _scale(self, name: str) -> Any:
        if not isinstance(self.scale, Mapping):
            return self.scale
        fitting = [path for path in self.scale if path == "" or f"{name}/".startswith(f"{path}/")]
        if not fitting:
            raise ValueError(
                f"the prior has no scale for {name!r}: it has {sorted(self.scale)}; add the path, "
                'or "" for all others'
            )
        return self.scale[max(fitting, key=len)]

    def _log_unit(self, z: jax.Array) -> jax.Array:
        raise NotImplementedError

    def _sample_unit(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        raise NotImplementedError

    def _unit_std(self) -> Any:
        return 1.0

    def _expected_unit(self, key: jax.Array, mean: jax.Array, std: jax.Array) -> jax.Array:
        return self._log_unit(mean + std * jax.random.normal(key, mean.shape, mean.dtype))


def _floats(tree: Any) -> list[Any]:
    return [x for x in jax.tree.leaves(tree) if is_float(x)]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Normal(Prior):
    """w ~ N(0, scale^2).

    Args:
        scale: Standard deviation; one number, or numbers by path.

    Example:
        >>> import jax.numpy as jnp
        >>> from onebasin.infer import Normal
        >>> params = {"Dense_0": {"kernel": jnp.zeros((3, 2)), "bias": jnp.zeros(2)}}
        >>> Normal({"Dense_0/bias": 1.0, "": 0.1}).spread(params)
        {'Dense_0': {'bias': 1.0, 'kernel': 0.1}}
        >>> round(float(Normal(2.0).log_density(params)), 3)
        -12.897
    """

    def _log_unit(self, z: jax.Array) -> jax.Array:
        return -0.5 * (z**2 + np.log(2 * np.pi))

    def _sample_unit(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return jax.random.normal(key, shape)

    def _expected_unit(self, key: jax.Array, mean: jax.Array, std: jax.Array) -> jax.Array:
        return -0.5 * (mean**2 + std**2 + np.log(2 * np.pi))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Laplace(Prior):
    """p(w) = exp(-abs(w) / scale) / (2 scale), of standard deviation sqrt(2) * scale.

    Args:
        scale: Mean absolute value; one number, or numbers by path.
    """

    def _log_unit(self, z: jax.Array) -> jax.Array:
        return -jnp.abs(z) - np.log(2)

    def _sample_unit(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return jax.random.laplace(key, shape)

    def _unit_std(self) -> Any:
        return float(np.sqrt(2))

    def _expected_unit(self, key: jax.Array, mean: jax.Array, std: jax.Array) -> jax.Array:
        # The mean of a folded normal.
        ratio = mean / std
        folded = std * np.sqrt(2 / np.pi) * jnp.exp(-(ratio**2) / 2) + mean * jax.lax.erf(
            ratio / np.sqrt(2)
        )
        return -folded - np.log(2)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class StudentT(Prior):
    """w / scale has Student's t distribution with `df` degrees of freedom.

    Args:
        scale: Scale; one number, or numbers by path.
        df: Degrees of freedom; below 2 the variance is infinite.
    """

    df: Any = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.df, int | float) and not self.df > 0:
            raise ValueError(f"got df={self.df} degrees of freedom, expected a positive number")

    def _log_unit(self, z: jax.Array) -> jax.Array:
        df = self.df
        constant = (
            jax.lax.lgamma((df + 1) / 2.0)
            - jax.lax.lgamma(jnp.asarray(df / 2.0, jnp.result_type(float)))
            - 0.5 * jnp.log(df * np.pi)
        )
        return constant - (df + 1) / 2 * jnp.log1p(z**2 / df)

    def _sample_unit(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return jax.random.t(key, self.df, shape)

    def _unit_std(self) -> Any:
        df = jnp.asarray(self.df, jnp.result_type(float))
        return jnp.where(df > 2, jnp.sqrt(df / jnp.where(df > 2, df - 2, 1)), 1.0)
