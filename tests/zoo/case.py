"""What a row of the zoo is, and the few helpers that its models share."""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

THOROUGH = os.environ.get("ONEBASIN_THOROUGH") == "1"
"""Whether tests go through the whole zoo and all seeds, which takes hours, or a choice of both."""

Model = tuple[Callable[[Any, Any], Any], Any, Any]
Factor = tuple[int, int, frozenset[str]]

KINDS = {"p": "permutation", "s": "scaling", "f": "sign"}


@dataclasses.dataclass(frozen=True)
class Case:
    """A model and the group that it has.

    Args:
        name: unique in the zoo.
        build: makes `(apply_fn, params, inputs)`: float32, tiny, parameters in general position.
        factors: the expected multiset of (size, copies, kinds). None: see `note`.
        scaling_dimension: of the whole group. None: not worked out.
        note: what somebody who wonders about the expectation should know.
        slow: takes over ten seconds to analyse and check.
        float32_only: fails on float64 parameters, as a framework wants it.
        smooth: whether derivatives tell which scalings there are.
    """

    name: str
    build: Callable[[], Model]
    factors: tuple[Factor, ...] | None
    scaling_dimension: int | None = None
    note: str = ""
    slow: bool = False
    float32_only: bool = False
    smooth: bool = True


def factor(size: int, kinds: str, copies: int = 1) -> Factor:
    """`factor(5, "psf")`: 5 units with permutations, scalings and (sign) flips."""
    return size, copies, frozenset(KINDS[kind] for kind in kinds)


def normal(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape, jnp.float32)


def generic(params: Any, seed: int = 1) -> Any:
    """Replace leaves of equal entries (zero biases, unit gains) by random ones around them."""

    def fill(path: Any, leaf: Any) -> Any:
        array = np.asarray(leaf)
        if array.size == 0 or np.any(array != array.flat[0]):
            return leaf
        noise = rng.normal(size=array.shape)
        positive = "var" in jax.tree_util.keystr(path)
        values = array * np.exp(0.4 * noise) if positive else array + 0.5 * noise
        return jnp.asarray(values, array.dtype)

    rng = np.random.default_rng(seed)
    return jax.tree_util.tree_map_with_path(fill, params)


def drawn(init: Callable[[Any, Any], Any], inputs: Any) -> Any:
    """Parameters in general position, of the shapes that `init` makes: nothing is compiled."""

    def fill(path: Any, leaf: Any) -> Any:
        name = jax.tree_util.keystr(path)
        noise = rng.normal(size=leaf.shape)
        if "var" in name:
            values = np.exp(0.4 * noise)
        elif "scale" in name:
            values = 1 + 0.5 * noise
        else:
            values = noise * (0.5 if noise.ndim < 2 else math.prod(noise.shape[:-1]) ** -0.5)
        return jnp.asarray(values, leaf.dtype)

    rng = np.random.default_rng(1)
    shapes = jax.eval_shape(init, jax.random.key(0), inputs)
    return jax.tree_util.tree_map_with_path(fill, shapes)


def linen(module: nn.Module, inputs: Any) -> Model:
    """A Flax module whose parameters are its "params", or all collections if it has more."""
    variables = drawn(module.init, inputs)
    if set(variables) == {"params"}:
        params = variables["params"]
        return (lambda params, inputs: module.apply({"params": params}, inputs)), params, inputs
    return (lambda params, inputs: module.apply(params, inputs)), dict(variables), inputs


def plain(
    apply_fn: Callable[[Any, Any], Any], shapes: Mapping[str, Sequence[int]], inputs: Any
) -> Model:
    """A plain function of a dictionary of arrays with these shapes."""
    rng = np.random.default_rng(2)
    params = {}
    for name, shape in shapes.items():
        fan_in = math.prod(shape[:-1]) if len(shape) > 1 else 2
        values = rng.normal(size=tuple(shape)) * math.sqrt(2 / max(fan_in, 1))
        params[name] = jnp.asarray(values, jnp.float32)
    return apply_fn, params, inputs


def as_float64(tree: Any) -> Any:
    """Cast the floating leaves; only under `jax.enable_x64`."""

    def cast(leaf: Any) -> Any:
        return leaf.astype(jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(cast, tree)
