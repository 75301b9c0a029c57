"""What is learned of a network: a function of its weights, whatever else it keeps count of.

A network with running statistics normalises by its batch while it learns: then it is a function of
its weights and of the batch, and the statistics do not matter. They are wanted when all is learned,
to predict from one input alone, and are estimated then, for the weights that came out: those of an
average, or of a draw, are not the average of statistics.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.nets import Net
from onebasin.nets.state import is_trained_apart, join, split

# Examples that statistics are estimated from, and how many of them at a time.
EXAMPLES = 10_000
BATCH = 500
# Less than any momentum leaves of what was before.
STILL = 1e-6


def learner_of(net: Net, example: Any) -> Net:
    """A network as a function of its weights; one without statistics is that already.

    Args:
        net: The network.
        example: A batch of one input, or its shape.
    """
    if not is_trained_apart(net.apply):
        return net
    state = split(jax.eval_shape(net.init, jax.random.key(0), example))[1]
    if not state:
        return net
    leaves, structure = jax.tree.flatten(state)
    shapes = tuple((tuple(x.shape), np.dtype(x.dtype).name) for x in leaves)
    return Net(WeightsInit(net.init), TrainedApply(net.apply, structure, shapes))


def keeps_count(learner: Net) -> bool:
    """Whether a network has running statistics."""
    return isinstance(learner.apply, TrainedApply)


# Values and not closures, so that equal networks share programs.
@dataclasses.dataclass(frozen=True)
class WeightsInit:
    """The weights alone of what a network's `init` makes."""

    init: Callable[..., Any]

    def __call__(self, key: jax.Array, inputs: Any) -> Any:
        return split(self.init(key, inputs))[0]


@dataclasses.dataclass(frozen=True)
class TrainedApply:
    """The outputs of a network that is being trained; statistics are those of the batch."""

    apply: Callable[..., Any]
    structure: Any
    shapes: tuple[tuple[tuple[int, ...], str], ...]

    def __call__(self, weights: Any, inputs: Any) -> Any:
        return self.apply(join(weights, self.filled(0.0)), inputs, train=True)[0]

    def updated(self, weights: Any, state: Any, inputs: Any) -> Any:
        """The statistics after a batch."""
        return self.apply(join(weights, state), inputs, train=True)[1]

    def filled(self, value: float) -> Any:
        """Statistics that are all the same number."""
        leaves = [jnp.full(shape, value, dtype) for shape, dtype in self.shapes]
        return jax.tree.unflatten(self.structure, leaves)


def estimate_state(learner: Net, weights: Any, batches: Any) -> Any:
    """The running statistics that a network with these weights would have on the data.

    A batch moves the statistics s to a s + (1 - a) b, where b are its own. That is seen from s = 0
    and s = 1, so that whatever a is, the mean of b over the batches is found. What a batch does not
    draw towards itself, as a counter, stays as the network begins with it.

    Args:
        learner: What `learner_of` made, of a network with statistics.
        weights: The weights of one network.
        batches: Inputs, (batch, example, ...).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from onebasin import nets
        >>> from onebasin.infer.learner import estimate_state, learner_of
        >>> net, x = nets.resnet((1,), norm="batch", width=2), jnp.ones((2, 4, 8, 8, 3))
        >>> weights = net.init(jax.random.key(0), x[0])["params"]
        >>> state = estimate_state(learner_of(net, x[0]), weights, x)
        >>> jax.tree.map(jnp.shape, state["batch_stats"]["norm"])
        {'mean': (2,), 'var': (2,)}
    """
    apply: TrainedApply = learner.apply  # type: ignore[assignment]

    def own(inputs: Any) -> Any:
        low = apply.updated(weights, apply.filled(0.0), inputs)
        high = apply.updated(weights, apply.filled(1.0), inputs)
        return jax.tree.map(_settled, low, high, start)

    first = jax.tree.map(lambda x: x[0], batches)
    init: WeightsInit = learner.init  # type: ignore[assignment]
    start = split(init.init(jax.random.key(0), first))[1]
    found = jax.lax.map(own, batches)
    return jax.tree.map(lambda x: jnp.mean(x, axis=0), found)


def _settled(low: jax.Array, high: jax.Array, start: jax.Array) -> jax.Array:
    """Where s -> low + (high - low) s stays, or the start where it stays nowhere or everywhere."""
    rest = 1 - (high - low)
    moves = jnp.abs(rest) > STILL
    return jnp.where(moves, low / jnp.where(moves, rest, 1), start)


@jax.jit
def estimate_states(problem: Any, params: Any) -> Any:
    """The running statistics of stacked weights, one network after the other.

    Args:
        problem: The problem, whose training inputs are taken, augmented where that is how the
            network learns.
        params: Weights, (network, ...).
    """
    batches = in_batches(problem.inputs, problem.num_examples)
    if problem.augment is not None:
        numbers = jnp.arange(jax.tree.leaves(batches)[0].shape[0])
        keys = jax.vmap(lambda n: jax.random.fold_in(jax.random.key(0), n))(numbers)
        batches = jax.lax.map(lambda own: problem.augment(*own), (keys, batches))
    return jax.lax.map(lambda own: estimate_state(problem.learner, own, batches), params)


def in_batches(inputs: Any, count: int) -> Any:
    """The first inputs as batches of equal size, (batch, example, ...), at most `EXAMPLES`.

    Args:
        inputs: Inputs, (example, ...).
        count: How many there are.
    """
    size = min(BATCH, count)
    batches = min(EXAMPLES, count) // size

    def cut(x: jax.Array) -> jax.Array:
        return x[: batches * size].reshape(batches, size, *x.shape[1:])

    return jax.tree.map(cut, inputs)
