"""REPAIR: giving the units of a merged network the statistics that its ends had.

Averaging two networks shrinks the variance of their units' inputs. Rescaling undoes that; it
changes the function, so the raw network is always returned beside the repaired one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.align.layers import Incoming, find_layers
from onebasin.align.paths import line
from onebasin.align.stream import Batches
from onebasin.align.telling import highest, lowest, table
from onebasin.posterior import trees


class UnitStatistics(NamedTuple):
    """Mean and standard deviation of each unit of a layer over the data, (unit,)."""

    mean: Any
    std: Any


class Repaired(NamedTuple):
    """A merged network before and after.

    Attributes:
        raw: The parameters as they were given.
        repaired: The parameters after; another function.
        scales: By which factor each unit's preactivation was multiplied, by layer.
        shifts: What was then added to it, by layer.
    """

    raw: Any
    repaired: Any
    scales: dict[str, jax.Array]
    shifts: dict[str, jax.Array]

    def __str__(self) -> str:
        """A line per layer: its units, and between what their scales and shifts lie."""
        rows: list[tuple[str, ...]] = [("layer", "units", "scales", "shifts")]
        for name, scale in self.scales.items():
            ranges = (f"{lowest(v)} to {highest(v)}" for v in (scale, self.shifts[name]))
            rows.append((name, str(np.size(scale)), *ranges))
        return f"a repaired network of {trees.num_weights(self.raw):,} weights\n{table(rows)}"

    def __repr__(self) -> str:
        units = sum(np.size(scale) for scale in self.scales.values())
        return (
            f"Repaired({trees.num_weights(self.raw):,} weights, {units:,} units in "
            f"{len(self.scales)} layers)"
        )


StatisticsFn = Callable[[Any, Any], Mapping[str, UnitStatistics]]


def repair(
    apply_fn: Callable[[Any, Any], Any],
    merged: Any,
    a: Any,
    b: Any,
    inputs: Any,
    t: Any = 0.5,
    *,
    shift: bool = True,
    batch_size: int = 1000,
    layers: Mapping[str, Incoming] | None = None,
    statistics_fn: StatisticsFn | None = None,
) -> Repaired:
    """Rescales each unit of a merged network to the statistics of its ends (jordan2023repair).

    A unit with preactivation h, mean m and standard deviation s in the merged network gets
    h' = (s* / s) (h - m) + m* with s* = (1 - t) s_a + t s_b and m* = (1 - t) m_a + t m_b; without
    `shift`, h' = (s* / s) h. Layers are taken in the order given, each on top of those before it,
    so that a repaired layer sees repaired inputs. A unit that never varies is left alone.

    Args:
        apply_fn: The model, `apply_fn(params, inputs) -> outputs`.
        merged: The parameters to repair.
        a: The end at t = 0, aligned.
        b: The end at t = 1, aligned.
        inputs: Training inputs, leading axis the example.
        t: Where between the ends the merged network stands.
        shift: Also match means, in layers with a bias. Without it preactivations are only rescaled,
            which is reported to be better on some plain networks: try both on training data.
        batch_size: Examples per forward pass.
        layers: Where each layer's preactivation is made, in forward order; by default the dense
            and convolutional layers that `find_layers` finds.
        statistics_fn: `statistics_fn(params, inputs)` gives the statistics of these layers'
            preactivations; needed with `layers`, and made by `unit_statistics`.

    Returns:
        The raw and the repaired parameters, scales and shifts.

    Example:
        >>> import jax.numpy as jnp
        >>> from onebasin.align.repair import repair
        >>> a, b, half = (jnp.array([[x], [1 - x]]) for x in (1.0, 0.0, 0.5))
        >>> inputs = jnp.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        >>> found = repair(lambda w, x: jnp.tanh(x @ w), half, a, b, inputs)
        >>> [round(float(x), 3) for x in found.repaired[:, 0]]
        [0.707, 0.707]
    """
    if (layers is None) != (statistics_fn is None):
        raise ValueError(
            "got one of layers and statistics_fn, expected both or neither: the one says where "
            "the layers are that the other measures"
        )
    if layers is None or statistics_fn is None:
        layers, capture_fn = find_layers(apply_fn, merged, inputs)
        statistics_fn = unit_statistics(capture_fn, batch_size)
    if not layers:
        raise ValueError(
            "no dense or convolutional layer was found in the model; pass layers and statistics_fn"
        )
    ends = statistics_fn(a, inputs), statistics_fn(b, inputs)
    for name in layers:
        if name not in ends[0]:
            known = ", ".join(map(repr, ends[0])) or "none"
            raise ValueError(f"statistics_fn gives no layer {name!r}; it gives {known}")
    params, scales, shifts = merged, {}, {}
    for name, incoming in layers.items():
        now = statistics_fn(params, inputs)[name]
        goal = line(UnitStatistics(*ends[0][name]), UnitStatistics(*ends[1][name]), t)
        varies = now.std > 0
        scale = jnp.where(varies, goal.std / jnp.where(varies, now.std, 1), 1)
        move = shift and incoming.bias is not None
        scales[name] = scale
        shifts[name] = jnp.where(varies & move, goal.mean - scale * now.mean, 0)
        params = _adjusted(params, name, incoming, scale, shifts[name])
    return Repaired(merged, params, scales, shifts)


def unit_statistics(
    capture_fn: Callable[[Any, Any], Mapping[str, jax.Array]], batch_size: int = 1000
) -> StatisticsFn:
    """A statistics function, streamed over batches, from one that captures preactivations.

    Args:
        capture_fn: `capture_fn(params, inputs)` gives the preactivations of each layer by name,
            (..., unit): units on the last axis, examples and places on the others.
        batch_size: Examples per pass.
    """

    @jax.jit
    def run(params: Any, batches: Batches) -> dict[str, UnitStatistics]:
        found = batches.moments(lambda inputs: dict(capture_fn(params, inputs)))
        return {name: UnitStatistics(m.mean, jnp.sqrt(m.variance)) for name, m in found.items()}

    return lambda params, inputs: run(params, Batches.of(inputs, batch_size))


def _adjusted(params: Any, name: str, incoming: Incoming, scale: Any, shift: Any) -> Any:
    found = trees.named_leaves(params)
    places = {path: number for number, (path, _) in enumerate(found)}
    leaves = [leaf for _, leaf in found]
    bias = () if incoming.bias is None else (incoming.bias,)
    for site in (*incoming.weights, *bias):
        number = places.get(site.path)
        if number is None:
            raise ValueError(f"layer {name!r} has no parameter {site.path!r} in this network")
        leaf = leaves[number]
        if site.axis is None or np.shape(leaf)[site.axis : site.axis + 1] != scale.shape:
            raise ValueError(
                f"layer {name!r} has {scale.size} units, and parameter {site.path!r} of shape "
                f"{np.shape(leaf)} has not so many along axis {site.axis}; name the axis of units"
            )
        shape = [-1 if axis == site.axis else 1 for axis in range(np.ndim(leaf))]
        leaf = leaf * scale.reshape(shape).astype(leaf.dtype)
        if site is incoming.bias:
            leaf = leaf + shift.reshape(shape).astype(leaf.dtype)
        leaves[number] = leaf
    return jax.tree.unflatten(jax.tree.structure(params), leaves)
