"""Monte Carlo dropout, for any network: masks on the outgoing weights of hidden units.

A mask z_i in {0, 1}, equal to 1 with probability 1 - p, switches a hidden unit or a channel off:
the weights v_i with which the rest of the network reads it become z_i v_i / (1 - p). Training
minimises

    E_z[-sum_n log p(y_n | x_n, theta_z)] - log p(theta)

and the networks theta_z are draws of an approximate posterior (gal2016dropout). The units are those
of the network's symmetry group, so that the network itself needs no dropout layers; inputs are
never dropped.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.engine import Engine
from onebasin.infer import training
from onebasin.infer.chunks import on_engine
from onebasin.infer.loop import Journal, modes, summary
from onebasin.infer.problem import Batch, Problem
from onebasin.nets import Net
from onebasin.posterior import Draws
from onebasin.store import Run
from onebasin.symmetry import Symmetry
from onebasin.symmetry.capture import Captured, Probe
from onebasin.symmetry.program import moved_index, uniform_axes


@dataclasses.dataclass(frozen=True, eq=False)
class HiddenUnits:
    """Which unit each weight goes out from.

    Attributes:
        count: The number of units.
        of_leaf: For each leaf the number of the unit of each weight; `count` stands for none. Axes
            along which it is the same have length 1.
    """

    count: int
    of_leaf: tuple[np.ndarray, ...]

    def mask(self, key: jax.Array, rate: float) -> jax.Array:
        """A factor for each unit: 0, or 1 / (1 - rate)."""
        return jax.random.bernoulli(key, 1 - rate, (self.count,)) / (1 - rate)

    def apply(self, mask: jax.Array, params: Any) -> Any:
        """The network whose units are scaled by a mask."""
        factors = jnp.append(mask, 1.0)
        leaves, structure = jax.tree.flatten(params)
        masked = [
            x * factors[unit].astype(x.dtype)
            if np.min(unit, initial=self.count) < self.count
            else x
            for x, unit in zip(leaves, self.of_leaf, strict=True)
        ]
        return jax.tree.unflatten(structure, masked)


def hidden_units(net: Net, params: Any, example: Any) -> HiddenUnits:
    """The hidden units of a network, found where it sums over them.

    Args:
        net: The network.
        params: Its parameters, or their shapes.
        example: A batch of one input, or its shape.

    Raises:
        ValueError: If there are none.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from onebasin import nets
        >>> from onebasin.infer.dropout import hidden_units
        >>> net = nets.mlp(hidden=(2,), outputs=3)
        >>> params = net.init(jax.random.key(0), jnp.ones((1, 4)))
        >>> units = hidden_units(net, params, jnp.ones((1, 4)))
        >>> masked = units.apply(jnp.array([1.0, 0.0]), params)
        >>> (masked["Dense_1"]["kernel"] != 0).astype(int).tolist()
        [[1, 1, 1], [0, 0, 0]]
    """
    leaves = jax.tree.leaves(params)
    probe = Probe(net.apply, params, example)
    starts: dict[tuple[str, ...], int] = {}
    count = 0
    found = [np.full(leaf.shape, -1) for leaf in leaves]
    for contraction in probe.contractions:
        for number, operand in enumerate(contraction.operands):
            if operand.origin is None or not contraction.operands[1 - number].data:
                continue
            axes = contraction.axes[number]
            for names, sizes, at, units in _outgoing(operand, axes, probe.symmetry):
                if names not in starts:
                    starts[names] = count
                    count += int(np.prod(sizes))
                index = moved_index(leaves[operand.origin].shape, operand.moves)[at].ravel()
                found[operand.origin].ravel()[index] = starts[names] + units.ravel()
    if not count:
        raise ValueError(
            "the network has no hidden units: nothing in it sums over units that could be dropped; "
            "take a network with a hidden layer, or another method"
        )
    return HiddenUnits(count, tuple(_narrow(np.where(u < 0, count, u)) for u in found))


def _narrow(array: np.ndarray) -> np.ndarray:
    """One entry in place of an axis along which an array is the same."""
    alike = uniform_axes(array)
    return array[tuple(slice(0, 1) if same else slice(None) for same in alike)]


def _outgoing(operand: Captured, axes: tuple[int, ...], symmetry: Symmetry) -> Any:
    """For each box of a matrix: the index sets summed over, their sizes, its place, its units.

    Units that are numbered anew in each group or layer are others there.
    """
    for block in operand.blocks:
        summed = [
            side
            for axis, own in enumerate(block.sides_of_axes())
            for side in own
            if axis in axes and block.sides[side] in symmetry.permutable
        ]
        if not summed:
            continue
        above = {parent for side in summed for parent in symmetry.parents[block.sides[side]]}
        sides = [n for n, name in enumerate(block.sides) if n in summed or name in above]
        sizes = tuple(block.shape[side] for side in sides)
        units = np.arange(np.prod(sizes)).reshape(sizes)
        wide = np.expand_dims(units, [n for n in range(len(block.shape)) if n not in sides])
        names = tuple(block.sides[side] for side in sides)
        yield names, sizes, block.at(), np.broadcast_to(wide, block.shape).reshape(block.lengths)


def units_of(problem: Problem) -> HiddenUnits:
    """The hidden units of a problem's network."""
    leaves, structure = jax.tree.flatten((problem.shapes(), jax.eval_shape(problem.example)))
    return _units(problem.learner, structure, tuple((x.shape, x.dtype) for x in leaves))


@functools.lru_cache(maxsize=64)
def _units(net: Net, structure: Any, leaves: Any) -> HiddenUnits:
    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in leaves]
    return hidden_units(net, *jax.tree.unflatten(structure, shapes))


@dataclasses.dataclass(frozen=True)
class Masked:
    """The objective of training: U / (N T) on a batch, with several masks for parts of it."""

    units: HiddenUnits
    rate: float
    num_masks: int

    def __call__(self, problem: Problem, unknowns: Any, batch: Batch, key: jax.Array) -> jax.Array:
        size = len(batch[1])
        masks = max(n for n in range(1, self.num_masks + 1) if size % n == 0)

        def part(number: jax.Array, batch: Batch) -> jax.Array:
            mask = self.units.mask(jax.random.fold_in(key, number), self.rate)
            return problem.log_likelihood(masked(problem, self.units, mask, unknowns), batch)

        parts = jax.tree.map(lambda x: x.reshape(masks, size // masks, *x.shape[1:]), batch)
        fit = jnp.mean(jax.vmap(part)(jnp.arange(masks), parts))
        total = (fit + problem.log_prior(unknowns)) / problem.temperature
        return -total / problem.num_examples


def masked(problem: Problem, units: HiddenUnits, mask: jax.Array, unknowns: Any) -> Any:
    """The unknowns with a mask on the network's units."""
    params = units.apply(mask, problem.params_of(unknowns))
    return problem.join(params, unknowns["log_noise"] if problem.learns_noise else None)


@on_engine(version=1)
def dropout(
    key: jax.Array,
    problem: Problem,
    *,
    rate: float = 0.1,
    num_networks: int = 1,
    num_samples: int = 100,
    num_masks: int = 8,
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    init: Any = "random",
    memory: int | None = None,
    progress: bool = False,
    run: str | Path | Run | None = None,
    chunk: int | None = None,
    engine: Engine | None = None,
) -> Draws:
    """Trains networks under dropout and draws networks with units switched off.

    Args:
        key: Random key.
        problem: What to learn.
        rate: The probability p that a unit is off.
        num_networks: How many networks to train.
        num_samples: How many masked networks to draw from each.
        num_masks: How many masks a batch is divided among, at most; a divisor of its size is taken.
        epochs: Epochs of training, by default as for `ensemble`.
        batch_size: Examples per step.
        learning_rate: Of Adam, by default as for `ensemble`.
        init: Where training starts, as for `ensemble`.
        memory: Budget in bytes of one step.
        progress: Whether to draw a bar.
        run: A folder that keeps the state; the same call continues there.
        chunk: Epochs between two saves.
        engine: Where chunks of networks run as tasks; None for here, all as one program.

    Returns:
        The masked networks, each trained network a mode; `info` has the loss curve.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import onebasin as ob
        >>> x = jnp.linspace(-1, 1, 16)[:, None]
        >>> problem = ob.Problem(
        ...     ob.nets.mlp(hidden=(4,), outputs=1), (x, x), likelihood="gaussian", noise=0.1
        ... )
        >>> ob.infer.dropout(jax.random.key(0), problem, num_samples=10, epochs=2)
        Draws(10 draws of 13 weights, 1 mode)
    """
    arguments = dict(locals())
    if not 0 <= rate < 1:
        raise ValueError(f"got rate={rate}, expected a probability of at least 0 and below 1")
    for name, value in (("num_samples", num_samples), ("num_masks", num_masks)):
        if value < 1:
            raise ValueError(f"got {name}={value}, expected at least one")
    units = units_of(problem)
    journal = Journal.open(dropout, key, problem, arguments, run, progress, chunk)
    for_init, for_training, for_masks = jax.random.split(key, 3)
    networks, outputs = training.train(
        journal,
        "training",
        for_training,
        problem,
        training.starts(for_init, problem, num_networks, init),
        num_networks,
        Masked(units, rate, num_masks),
        optimizer=None,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
        memory=memory,
    )
    drawn = _draws(problem, Masked(units, rate, num_masks), networks, for_masks, num_samples)
    info = summary(journal, loss=outputs["loss"])
    return problem.draws(drawn, modes(num_samples, num_networks), info=info)


@functools.partial(jax.jit, static_argnums=(1, 4))
def _draws(problem: Problem, rule: Masked, networks: Any, key: jax.Array, count: int) -> Any:
    """Masked networks, all of one trained network before the next's."""
    size = jax.tree.leaves(networks)[0].shape[0]

    def draw(number: jax.Array) -> Any:
        own = jax.tree.map(lambda x: x[number // count], networks)
        mask = rule.units.mask(jax.random.fold_in(key, number), rule.rate)
        return masked(problem, rule.units, mask, own)

    return jax.lax.map(draw, jnp.arange(size * count))
