"""Posterior samples: stacked parameters, and where each came from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.posterior import trees
from onebasin.symmetry.host import handed_over, on_host


@trees.pytree
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Draws:
    """Samples of a posterior, stacked: every leaf of `params` has shape (draw, ...).

    Leaves stay what they are (a NumPy array that is mapped from disk is not read until used).
    `draws[3]` is one parameter tree; `draws[:10]` and `draws[indices]` are `Draws`.

    Args:
        params: Stacked parameters, any pytree.
        mode: Integers (draw,): the chain, run or component that each draw came from; 0 by default.
        log_density: Log density of each draw under the distribution it was drawn from, up to a
            constant, (draw,), if known.
        statistics: Anything else that is known of each draw (acceptance rate, energy, ...): a
            pytree whose leaves have shape (draw, ...).
        info: What is known of the run that made them (loss curve, seconds, ...); a dictionary that
            computations leave behind.

    Example:
        >>> import jax.numpy as jnp
        >>> from onebasin.posterior import Draws
        >>> draws = Draws({"w": jnp.arange(6.0).reshape(3, 2)}, mode=jnp.array([0, 0, 1]))
        >>> draws
        Draws(3 draws of 2 weights, 2 modes)
        >>> draws.mean()["w"].tolist()
        [2.0, 3.0]
        >>> draws.of_mode(1)[0]["w"].tolist()
        [4.0, 5.0]
    """

    params: Any
    mode: Any = None
    log_density: Any = None
    statistics: Any = None
    info: Any = dataclasses.field(default=None, metadata=trees.RECORD)

    def __post_init__(self) -> None:
        leaves = trees.named_leaves(self.params)
        if not leaves:
            raise ValueError("params has no leaves, expected a pytree of arrays (draw, ...)")
        count, first = None, ""
        for path, leaf in leaves:
            if not np.shape(leaf):
                raise ValueError(
                    f"leaf {path!r} is a scalar, expected a leading axis of draws; stack single "
                    "networks with Draws.stack"
                )
            if count is None:
                count, first = np.shape(leaf)[0], path
            elif np.shape(leaf)[0] != count:
                raise ValueError(
                    f"leaf {path!r} has {np.shape(leaf)[0]} draws, expected {count} as {first!r} "
                    "has; the first axis of every leaf is the draw"
                )
        if not count:
            raise ValueError("there are no draws: the first axis of every leaf has size 0")
        if self.mode is None:
            object.__setattr__(self, "mode", jnp.zeros(count, jnp.int32))
        for name in ("mode", "log_density"):
            value = _as_array(name, getattr(self, name))
            object.__setattr__(self, name, value)
            if value is not None and np.shape(value) != (count,):
                raise ValueError(
                    f"{name} has shape {np.shape(value)}, expected ({count},): one per draw"
                )
        if not jax.dtypes.issubdtype(jnp.result_type(self.mode), np.integer):
            raise ValueError(
                f"mode is {jnp.result_type(self.mode)}, expected integers: the number of the chain "
                "or run that each draw came from"
            )
        for path, leaf in trees.named_leaves(self.statistics):
            if np.shape(leaf)[:1] != (count,):
                raise ValueError(
                    f"statistic {path!r} has shape {np.shape(leaf)}, expected ({count}, ...): one "
                    "per draw"
                )

    @classmethod
    def stack(
        cls,
        params: Sequence[Any],
        mode: Any = None,
        log_density: Any = None,
        statistics: Any = None,
    ) -> Draws:
        """Stacks single networks.

        Args:
            params: Parameter trees of one model.
            mode: Which run each came from; by default all are of mode 0.
            log_density: Log density of each, if known.
            statistics: Stacked statistics, if any.
        """
        networks = list(params)
        if not networks:
            raise ValueError("there are no networks to stack; pass at least one parameter tree")
        for number, other in enumerate(networks[1:], 1):
            trees.check_same(networks[0], other, "network 0", f"network {number}")
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *networks)
        return cls(stacked, mode, log_density, statistics)

    @classmethod
    def concatenate(cls, parts: Sequence[Draws], *, renumber: bool = False) -> Draws:
        """Puts several populations one after the other.

        Log densities and statistics are kept where every part has them.

        Args:
            parts: Populations of one model.
            renumber: Give each part mode numbers of its own. Without it equal numbers stay equal:
                right for pieces of the same chains, wrong for separate runs.
        """
        parts = list(parts)
        if not parts:
            raise ValueError("there are no populations to concatenate; pass at least one Draws")
        for number, other in enumerate(parts[1:], 1):
            trees.check_same(parts[0][0], other[0], "population 0", f"population {number}")
        modes = [part.mode for part in parts]
        if renumber:
            start, modes = 0, []
            for part in parts:
                numbers, inverse = np.unique(np.asarray(part.mode), return_inverse=True)
                modes.append(jnp.asarray(inverse + start, jnp.int32))
                start += len(numbers)

        def join(values: list[Any]) -> Any:
            if any(value is None for value in values):
                return None
            return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *values)

        statistics = [part.statistics for part in parts]
        if len({jax.tree.structure(value) for value in statistics}) > 1:
            statistics = [None]
        return cls(
            join([part.params for part in parts]),
            join(modes),
            join([part.log_density for part in parts]),
            join(statistics),
        )

    @property
    def num_draws(self) -> int:
        """Number of draws."""
        return int(np.shape(jax.tree.leaves(self.params)[0])[0])

    @property
    def modes(self) -> tuple[int, ...]:
        """The modes that occur, in increasing order."""
        return tuple(np.unique(np.asarray(self.mode)).tolist())

    def __len__(self) -> int:
        return self.num_draws

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(self.num_draws))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int | np.integer) and not -len(self) <= index < len(self):
            raise IndexError(f"there is no draw {index}: there are {len(self)}")
        if isinstance(index, list | tuple):
            index = np.asarray(index)
        if not isinstance(index, slice) and np.ndim(index) == 0:
            return _take(self.params, index)
        return dataclasses.replace(_take(self, index), info=self.info)

    def of_mode(self, mode: int) -> Draws:
        """The draws of one chain or run."""
        (where,) = np.nonzero(np.asarray(self.mode) == mode)
        if not len(where):
            raise ValueError(f"there are no draws of mode {mode}; there are modes {self.modes}")
        return self[where]

    def mean(self) -> Any:
        """The mean of every weight; counters and other integers are those of the first draw."""
        if on_host(self.params) and all(map(_summed_at_once, jax.tree.leaves(self.params))):
            return handed_over(jax.tree.map(_host_mean, self.params))
        return _mean(self.params)

    def std(self) -> Any:
        """The standard deviation of every weight, with divisor n - 1."""
        if self.num_draws < 2:
            raise ValueError("one draw has no spread; draw at least two, or use its weights alone")
        return _std(self.params)

    def check_finite(self) -> Draws:
        """These draws, after checking that no leaf holds NaN or infinity."""
        trees.check_finite(self.params, "the draws")
        return self

    def __repr__(self) -> str:
        weights = trees.num_weights(self.params) // self.num_draws
        several = "draw" if self.num_draws == 1 else "draws"
        text = f"{self.num_draws:,} {several} of {weights:,} weights"
        if isinstance(self.mode, jax.core.Tracer):
            return f"Draws({text})"
        return f"Draws({text}, {len(self.modes)} mode{'s' * (len(self.modes) != 1)})"


def _as_array(name: str, value: Any) -> Any:
    """Lists as arrays, which have one leaf; all else as it is."""
    if not isinstance(value, list | tuple):
        return value
    try:
        return jnp.asarray(np.asarray(value))
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} is a {type(value).__name__} that is not of numbers, expected one number per "
            "draw"
        ) from None


def _take(tree: Any, index: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def _summed_at_once(leaf: Any) -> bool:
    """Whether NumPy adds up a leaf as well as XLA does."""
    return not trees.is_float(leaf) or leaf.dtype in (np.float32, np.float64)


def _host_mean(leaf: Any) -> np.ndarray:
    """The mean of one leaf at once, where compiling takes longer than adding up."""
    stacked = np.asarray(leaf)
    if not trees.is_float(leaf):
        return stacked[0].copy()
    wide = stacked.astype(jnp.promote_types(stacked.dtype, np.float32), copy=False)
    total = np.ones(len(wide), wide.dtype) @ wide.reshape(len(wide), -1)
    mean = (total / wide.dtype.type(len(wide))).reshape(wide.shape[1:])
    return mean.astype(stacked.dtype, copy=False)


@jax.jit
def _mean(params: Any) -> Any:
    def mean(x: jax.Array) -> jax.Array:
        # On processors a sum over the leading axis takes 50 times as long as this product.
        # In half precision the sum of a thousand weights may be infinite.
        wide = trees.widened(x)
        total = jnp.einsum("d,d...->...", jnp.ones(len(x), wide.dtype), wide, precision="highest")
        return (total / len(x)).astype(x.dtype)

    return jax.tree.map(lambda x: mean(x) if trees.is_float(x) else x[0], params)


@jax.jit
def _std(params: Any) -> Any:
    def std(x: jax.Array) -> jax.Array:
        # In half precision squares of small weights are zero, those of large ones infinite.
        return jnp.std(trees.widened(x), axis=0, ddof=1).astype(x.dtype)

    return jax.tree.map(
        lambda x: std(x) if trees.is_float(x) else jnp.zeros(x.shape[1:]),
        params,
    )
