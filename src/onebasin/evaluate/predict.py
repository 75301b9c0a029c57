"""What a posterior predicts: the outputs of each of its networks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.align.checks import check_unwrapped
from onebasin.posterior import Draws, Gaussian, Mixture
from onebasin.posterior.trees import with_arrays
from onebasin.symmetry.host import widened
from onebasin.symmetry.keys import key_or_first

LINKS: dict[str, Callable[[Any], Any]] = {
    # In half precision they would not sum to one.
    "softmax": lambda x: jax.nn.softmax(widened(x)),
    "identity": lambda x: x,
}
STACKED = (
    "the parameters are those of several networks, stacked, expected one network: wrap them, as in "
    "onebasin.Draws(params)"
)


def predict(
    apply_fn: Callable[[Any, Any], Any],
    posterior: Any,
    inputs: Any,
    *,
    key: jax.Array | None = None,
    num_samples: int | None = None,
    batch_size: int = 1000,
    link: str = "softmax",
) -> jax.Array:
    """The predictions of each network of a posterior.

    Args:
        apply_fn: The model, `apply_fn(params, inputs) -> outputs`.
        posterior: `Draws`, a `Gaussian`, a `Mixture`, or one network's parameters.
        inputs: Inputs, leading axis the example; lists of numbers, or of rows, are arrays.
        key: Random key for drawing from a Gaussian or a mixture; `jax.random.key(0)` by default.
        num_samples: How many networks: of `Draws` this many, evenly spread, all by default; of the
            others 100 by default.
        batch_size: Examples per forward pass; memory grows with it.
        link: "softmax" for probabilities of logits, "identity" for outputs as they are, as those of
            a regression.

    Returns:
        (sample, example, class) probabilities, or outputs (sample, example, ...).

    Example:
        >>> import jax.numpy as jnp
        >>> import onebasin as ob
        >>> posterior = ob.Gaussian({"w": jnp.ones((3, 2))}, 0.1)
        >>> ob.predict(lambda p, x: x @ p["w"], posterior, jnp.ones((5, 3)), num_samples=4).shape
        (4, 5, 2)
    """
    if link not in LINKS:
        raise ValueError(f"got link={link!r}, expected one of {', '.join(LINKS)}")
    if num_samples is not None and num_samples < 1:
        raise ValueError(f"got num_samples={num_samples}, expected at least one")
    key = key_or_first(key)
    if not callable(apply_fn):
        raise TypeError(
            f"the model is a {type(apply_fn).__name__}, expected a function apply_fn(params, "
            "inputs): of a network pass its .apply"
        )
    check_unwrapped("the posterior", posterior)
    inputs = jax.tree.map(jnp.asarray, with_arrays(inputs, "the inputs"))
    leaves = jax.tree.leaves(inputs)
    if not leaves or not all(leaf.ndim for leaf in leaves):
        said = "hold a number without axes" if leaves else "hold no arrays"
        raise ValueError(f"the inputs {said}, expected arrays whose first axis is the example")
    count = len(leaves[0])
    if not count:
        raise ValueError("there are no inputs to predict: the first axis has size 0")
    size = min(batch_size, count)
    if isinstance(posterior, Gaussian):
        keys = jax.random.split(key, num_samples or 100)
        return _of_gaussian(apply_fn, link, size, posterior, inputs, keys)
    if isinstance(posterior, Mixture):
        posterior, num_samples = posterior.sample(key, num_samples or 100), None
    if not isinstance(posterior, Draws):
        first = _first_outputs(apply_fn, posterior, inputs)
        try:
            outputs = _of_network(apply_fn, link, size, posterior, inputs)
        except Exception as error:
            if first is not None:
                raise ValueError(STACKED) from error
            raise
        # As many networks as examples: arrays broadcast, and nothing fails.
        if first is not None and outputs.ndim > first.ndim:
            raise ValueError(STACKED)
        return outputs[None]
    if num_samples is not None and num_samples > len(posterior):
        raise ValueError(
            f"got num_samples={num_samples}, and there are {len(posterior)} draws: expected at "
            "most as many"
        )
    if num_samples is not None:
        chosen = np.linspace(0, len(posterior) - 1, num_samples).round().astype(int)
        posterior = posterior[chosen]
    return _of_draws(apply_fn, link, size, posterior.params, inputs)


def _first_outputs(apply_fn: Any, params: Any, inputs: Any) -> Any:
    """What the model makes of the first entry of every leaf, if all are equally long and it runs.

    Only shapes: an outcome says that the parameters are likely those of several networks.
    """
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(params)]
    if len({shape[:1] for shape in shapes}) != 1 or () in shapes:
        return None
    first = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), params)
    try:
        return jax.eval_shape(apply_fn, first, inputs)
    except Exception:
        return None


def _linked(link: str, outputs: Any) -> Any:
    """The outputs through the link; one output is refused where the link compares several."""
    if link == "softmax" and (outputs.ndim < 2 or outputs.shape[-1] == 1):
        raise ValueError(
            f"the model has one output for each example (shape {outputs.shape}), and the softmax "
            "of one output is 1: pass link='identity' for a regression, or give the model one "
            "output per class"
        )
    return LINKS[link](outputs)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _of_network(apply_fn: Any, link: str, size: int, params: Any, inputs: Any) -> jax.Array:
    """One network on all inputs, `size` of them at a time."""
    count = jax.tree.leaves(inputs)[0].shape[0]
    whole = count // size
    head = jax.tree.map(lambda x: x[: whole * size].reshape(whole, size, *x.shape[1:]), inputs)
    outputs = jax.lax.map(lambda batch: _linked(link, apply_fn(params, batch)), head)
    outputs = outputs.reshape(whole * size, *outputs.shape[2:])
    if whole * size == count:
        return outputs
    rest = _linked(link, apply_fn(params, jax.tree.map(lambda x: x[whole * size :], inputs)))
    return jnp.concatenate([outputs, rest])


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _of_draws(apply_fn: Any, link: str, size: int, stacked: Any, inputs: Any) -> jax.Array:
    return jax.lax.map(lambda p: _of_network(apply_fn, link, size, p, inputs), stacked)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _of_gaussian(
    apply_fn: Any, link: str, size: int, q: Gaussian, inputs: Any, keys: jax.Array
) -> jax.Array:
    return jax.lax.map(lambda k: _of_network(apply_fn, link, size, q.draw(k), inputs), keys)
