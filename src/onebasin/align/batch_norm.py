"""BatchNorm after merging: the running statistics of the merged network itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from onebasin.align.barrier import as_pytree
from onebasin.align.layers import producers, repeated_vector
from onebasin.align.repair import Repaired
from onebasin.align.stream import Batches
from onebasin.posterior import trees
from onebasin.symmetry.program import Program, Variable, evaluate, trace

COLLECTION = "batch_stats"
# How the running mean and variance are called: by Flax, in their collection, and by PyTorch.
ENDINGS = (("/mean", "/var"), ("running_mean", "running_var"))


class _Layer(NamedTuple):
    """A BatchNorm layer: where its statistics stand, and the value that they describe."""

    mean: int
    variance: int
    value: Variable
    axis: int


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
    layer's input. They are reset one after the other, each on top of those before it, so that
    afterwards every layer's statistics are exactly those of its inputs over the data. That takes as
    many passes over the data as there are layers.

    Networks that are to be merged are aligned with `scaling=None` first: a channel before BatchNorm
    can be scaled against the gain behind it only as long as the running variance stays.

    Args:
        apply_fn: The model in inference mode, `apply_fn(params, inputs) -> outputs`.
        params: Parameters {"params": ..., "batch_stats": ...}, as Flax has them, or by state-dict
            names, as `from_torch` gives them.
        inputs: Training inputs, leading axis the example.
        statistics_fn: `statistics_fn(params, inputs) -> batch_stats` in place of all this, for
            models that keep them differently.
        batch_size: Examples per forward pass.

    Returns:
        The raw and the repaired parameters; scales and shifts are empty.
    """
    named = isinstance(params, Mapping) and any(str(n).endswith(ENDINGS[1][0]) for n in params)
    if not isinstance(params, Mapping) or not (COLLECTION in params or named):
        raise ValueError(
            f"the parameters have no {COLLECTION!r} to reset, expected a mapping with it beside "
            "'params', or 'running_mean' among its names; networks without BatchNorm take repair"
        )
    if statistics_fn is not None and COLLECTION not in params:
        fresh = statistics_fn(params, inputs)
        old = {name: params.get(name) for name in fresh}
        trees.check_same(old, fresh, "the parameters", "what statistics_fn gives")
        return Repaired(params, {**params, **fresh}, {}, {})
    if statistics_fn is not None:
        fresh = statistics_fn(params, inputs)
        trees.check_same(params[COLLECTION], fresh, COLLECTION, "what statistics_fn gives")
        return Repaired(params, {**params, COLLECTION: fresh}, {}, {})
    repaired = _reset(as_pytree(apply_fn), params, Batches.of(inputs, batch_size))
    return Repaired(params, repaired, {}, {})


@jax.jit
def _reset(apply_fn: Any, params: Any, batches: Batches) -> Any:
    leaves, structure = jax.tree.flatten(params)
    num_layers = len(_statistics_leaves(params))

    def values(leaves: list[Any], inputs: Any) -> dict[str, jax.Array]:
        program, layers = _layers(apply_fn, params, inputs)
        arguments = [*leaves, *jax.tree.leaves(inputs)]
        found = evaluate(program, arguments, [layer.value for layer in layers])
        return {
            f"{layer.mean} {layer.variance}": jnp.moveaxis(value, layer.axis, -1)
            for layer, value in zip(layers, found, strict=True)
        }

    first = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), batches.full)
    _, order = _layers(apply_fn, params, first)

    def step(number: Any, leaves: list[Any]) -> list[Any]:
        moments = batches.moments(lambda inputs: values(leaves, inputs))
        fresh = list(leaves)
        for position, layer in enumerate(order):
            found = moments[f"{layer.mean} {layer.variance}"]
            for place, value in ((layer.mean, found.mean), (layer.variance, found.variance)):
                old = leaves[place]
                fresh[place] = jnp.where(position == number, value.astype(old.dtype), old)
        return fresh

    leaves = jax.lax.fori_loop(0, num_layers, step, [jnp.asarray(leaf) for leaf in leaves])
    return jax.tree.unflatten(structure, leaves)


def _statistics_leaves(params: Any) -> dict[int, tuple[str, int]]:
    """For the place of each running mean among the leaves, its path and that of its variance."""
    paths = [path for path, _ in trees.named_leaves(params)]
    places = {path: number for number, path in enumerate(paths)}
    found = {}
    for number, path in enumerate(paths):
        for mean, var in ENDINGS:
            variance = path.removesuffix(mean) + var
            ours = path.startswith(f"{COLLECTION}/") or mean == ENDINGS[1][0]
            if ours and path.endswith(mean) and variance in places:
                found[number] = path, places[variance]
    if not found:
        raise ValueError(
            f"{COLLECTION!r} has no leaves 'mean' and 'var' beside each other, expected those of "
            "Flax's BatchNorm; pass statistics_fn"
        )
    return found


def _layers(apply_fn: Any, params: Any, inputs: Any) -> tuple[Program, list[_Layer]]:
    """The model's program and its BatchNorm layers, in order of execution."""
    program = trace(apply_fn, params, inputs)
    statistics = _statistics_leaves(params)
    made_by = producers(program)
    means = {id(program.inputs[number]): number for number in statistics}
    layers: dict[int, _Layer] = {}
    for equation in program.equations:
        if equation.name != "sub":
            continue
        value, subtracted = equation.inputs
        origin = repeated_vector(subtracted, made_by)
        if origin is None or id(origin[0]) not in means:
            continue
        number = means[id(origin[0])]
        path, variance = statistics[number]
        if number in layers:
            raise ValueError(
                f"{path!r} is subtracted in two places, expected one layer for each running mean; "
                "pass statistics_fn"
            )
        layers[number] = _Layer(number, variance, value, origin[1])
    for number, (path, _) in statistics.items():
        if number not in layers:
            raise ValueError(
                f"{path!r} is not subtracted from anything in this model's program (it may run in "
                "training mode, or inside a loop); pass statistics_fn"
            )
    return program, list(layers.values())
