"""BatchNorm after merging: the running statistics of the merged network itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from onebasin.align.barrier import as_pytree
from onebasin.align.repair import Repaired
from onebasin.align.running import COLLECTION, find_running
from onebasin.align.stream import Batches
from onebasin.posterior import trees
from onebasin.symmetry.program import evaluate


def reset_batch_norm(
    apply_fn: Callable[[Any, Any], Any],
    params: Any,
    inputs: Any,
    *,
    statistics_fn: Callable[[Any, Any], Any] | None = None,
    batch_size: int = 1000,
) -> Repaired:
    """Recomputes the running means and variances of BatchNorm layers from data.

    The average of two networks' statistics is not the statistics of their average. The layers are
    found in the model's own program, in inference mode: the value from which a leaf
    `batch_stats/.../mean` (or `....running_mean`, of a PyTorch module) is subtracted is that
    layer's input; where leaves have other names (Flax NNX, Equinox), a layer is what the program
    shows, a value from which one leaf is subtracted and which is divided by the root of another
    plus a constant. They are reset one after the other, each on top of those before it, so that
    afterwards every layer's statistics are exactly those of its inputs over the data. That takes as
    many passes over the data as there are layers.

    Networks that are to be merged are aligned with `scaling=None` first: a channel before BatchNorm
    can be scaled against the gain behind it only as long as the running variance stays.

    Args:
        apply_fn: The model in inference mode, `apply_fn(params, inputs) -> outputs`.
        params: Parameters {"params": ..., "batch_stats": ...}, as Flax Linen has them; by
            state-dict names, as `from_torch` gives them; or any tree that holds the statistics: an
            NNX state, the arrays of an Equinox model and its state.
        inputs: Training inputs, leading axis the example.
        statistics_fn: `statistics_fn(params, inputs)` in place of all this, for models that keep
            them differently: it gives the new `batch_stats`, or a dictionary of the names that
            change, or else the parameters anew, whole.
        batch_size: Examples per forward pass.

    Returns:
        The raw and the repaired parameters; scales and shifts are empty.
    """
    if statistics_fn is not None:
        return Repaired(params, _replaced(params, statistics_fn(params, inputs)), {}, {})
    repaired = _reset(as_pytree(apply_fn), params, Batches.of(inputs, batch_size))
    return Repaired(params, repaired, {}, {})


def _replaced(params: Any, fresh: Any) -> Any:
    """The parameters with the statistics that a function gave."""
    if jax.tree.structure(fresh) == jax.tree.structure(params):
        trees.check_same(params, fresh, "the parameters", "what statistics_fn gives")
        return fresh
    if isinstance(params, Mapping) and COLLECTION in params:
        trees.check_same(params[COLLECTION], fresh, COLLECTION, "what statistics_fn gives")
        return {**params, COLLECTION: fresh}
    if type(params) is dict and isinstance(fresh, Mapping):
        old = {name: params.get(name) for name in fresh}
        trees.check_same(old, dict(fresh), "the parameters", "what statistics_fn gives")
        return {**params, **fresh}
    trees.check_same(params, fresh, "the parameters", "what statistics_fn gives")
    return fresh


@jax.jit
def _reset(apply_fn: Any, params: Any, batches: Batches) -> Any:
    leaves, structure = jax.tree.flatten(params)

    def values(leaves: list[Any], inputs: Any) -> dict[str, jax.Array]:
        program, layers = find_running(apply_fn, params, inputs)
        arguments = [*leaves, *jax.tree.leaves(inputs)]
        found = evaluate(program, arguments, [layer.value for layer in layers])
        return {
            f"{layer.mean} {layer.variance}": jnp.moveaxis(value, layer.axis, -1)
            for layer, value in zip(layers, found, strict=True)
        }

    first = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), batches.full)
    _, order = find_running(apply_fn, params, first)

    def step(number: Any, leaves: list[Any]) -> list[Any]:
        moments = batches.moments(lambda inputs: values(leaves, inputs))
        fresh = list(leaves)
        for position, layer in enumerate(order):
            found = moments[f"{layer.mean} {layer.variance}"]
            for place, value in ((layer.mean, found.mean), (layer.variance, found.variance)):
                old = leaves[place]
                fresh[place] = jnp.where(position == number, value.astype(old.dtype), old)
        return fresh

    leaves = jax.lax.fori_loop(0, len(order), step, [jnp.asarray(leaf) for leaf in leaves])
    return jax.tree.unflatten(structure, leaves)
