"""What an alignment proves: no permutation and signs below its bound, no gap where it rests."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo import CASES

import onebasin as ob
from onebasin.align.assignment import Assignment
from onebasin.align.ceiling import ceiling
from onebasin.align.match import objective_for
from onebasin.align.proof import gaps_of
from onebasin.align.state import State

INPUTS = jax.random.normal(jax.random.key(9), (40, 4))
ALL = {case.name: case for case in CASES}
# Plain, signs, two signs per unit, ties, groups, blocks, self-connections, heads, loops.
MODELS = (
    "mlp-relu",
    "mlp-tanh",
    "bilinear-glu",
    "mlp-batchnorm-relu",
    "grouped-conv",
    "resnet-None-relu",
    "rnn-tanh",
    "encoder-plain",
    "residual-scan",
    "encoder-scanned",
)
COSTS = ("weights", "wasserstein", "kl", "kl-reverse", "kl-mean")


def pair_of(hidden: tuple[int, ...], activation: str) -> tuple[ob.Net, ob.Symmetry, list[Any]]:
    """Two unrelated networks, biases too."""
    net = ob.nets.mlp(hidden=hidden, outputs=2, activation=activation)
    pair = [net.init(jax.random.key(seed), INPUTS) for seed in (0, 1)]
    pair = [
        jax.tree.map(lambda x, n=n: x + 0.3 * jax.random.normal(jax.random.key(n), x.shape), p)
        for n, p in enumerate(pair, start=5)
    ]
    return net, ob.discover(net.apply, pair[0], INPUTS), pair


def gaussians(pair: list[Any]) -> list[ob.Gaussian]:
    found = []
    for number, params in enumerate(pair, start=20):
        noise = jax.tree.map(
            lambda x, n=number: jax.random.normal(jax.random.key(n), x.shape), params
        )
        found.append(ob.Gaussian(params, jax.tree.map(lambda z: 0.2 * jnp.exp(0.5 * z), noise)))
    return found


def states(symmetry: ob.Symmetry) -> Any:
    """Every permutation of every factor with every choice of its signs."""
    own = []
    for factor in symmetry.factors:
        orders = itertools.permutations(range(factor.size))
        flips = list(itertools.product((1, -1), repeat=factor.size * factor.signs))
        own.append([(factor, order, flip) for order in orders for flip in flips])
    for each in itertools.product(*own):
        yield State(
            {f.name: np.array(order) for f, order, _ in each},
            {
                f.name: np.array(flip, np.int8).reshape(f.size, f.signs)
                for f, _, flip in each
                if f.signs
            },
        )


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_no_matching_of_all_that_there_are_is_below_the_bound(activation: str, cost: str) -> None:
    _, symmetry, pair = pair_of((3, 3), activation)
    if cost != "weights":
        pair = gaussians(pair)
    found = ob.align(symmetry, pair[1], to=pair[0], cost=cost, scaling=None, solver="frank-wolfe")
    objective, price = objective_for(symmetry, pair[1], pair[0], cost, None, None, 0)
    costs = [price(objective.objective(state)) for state in states(symmetry)]
    assert len(costs) == (36 if activation == "relu" else 2304)
    assert found.bound is not None
    assert found.bound <= min(costs) + 1e-4
    if cost in ("weights", "wasserstein"):
        assert found.bound > 0.3 * min(costs)


@functools.cache
def network(name: str) -> tuple[Any, ob.Symmetry, list[Any]]:
    apply_fn, params, inputs = ALL[name].build()
    symmetry = ob.discover(apply_fn, params, inputs)

    def other(leaf: Any, number: int) -> Any:
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            return leaf
        size = jnp.std(leaf) + 0.1
        return leaf + size * jax.random.normal(jax.random.key(number), leaf.shape, leaf.dtype)

    leaves, structure = jax.tree.flatten(params)
    moved = structure.unflatten([other(leaf, n) for n, leaf in enumerate(leaves)])
    return apply_fn, symmetry, [params, moved]


@pytest.mark.parametrize("name", MODELS)
def test_whatever_the_group_is_made_of_nothing_is_below_the_bound(name: str) -> None:
    _, symmetry, (params, other) = network(name)
    rng = np.random.default_rng(0)
    planted = symmetry.act(
        symmetry.random(jax.random.key(1), kinds=("permutation", "sign")), params
    )
    for moved, lowest in ((other, None), (planted, 0.0)):
        objective, price = objective_for(symmetry, moved, params, "weights", None, None, 0)
        bound = price(ceiling(objective, Assignment()))
        slack = 1e-5 * price(0.0)
        found = ob.align(symmetry, moved, to=params, scaling=None)
        assert found.bound is not None
        assert found.bound <= found.cost
        assert bound <= found.cost + slack
        if lowest is not None:
            assert bound <= lowest + slack
        for _ in range(30):
            state = State.random(symmetry, rng)
            state.signs = {k: rng.choice([-1, 1], v.shape) for k, v in state.signs.items()}
            assert bound <= price(objective.objective(state)) + slack


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("scaling", ["auto", "min-mass", None])
def test_networks_that_scale_have_a_bound_that_says_something(
    activation: str, scaling: str | None
) -> None:
    _, symmetry, pair = pair_of((24, 24), activation)
    found = ob.align(symmetry, pair[1], to=pair[0], scaling=scaling)
    assert found.bound is not None
    assert 0.15 * found.cost < found.bound <= found.cost
    assert f"no permutation and signs below {found.bound:.6g}" in str(found)


def test_with_one_hidden_layer_the_bound_is_what_was_reached() -> None:
    _, symmetry, pair = pair_of((8,), "tanh")
    found = ob.align(symmetry, pair[1], to=pair[0])
    assert found.exact
    assert found.bound == found.cost
    # A solver that does not know that it found the best is told so by its own bound.
    other = ob.align(
        symmetry,
        pair[1],
        to=pair[0],
        solver="straight-through",
        loss_fn=lambda p: sum(jnp.sum(x**2) for x in jax.tree.leaves(p)),
        steps=2,
    )
    assert not other.exact
    assert other.bound == pytest.approx(found.cost, rel=1e-5)


def test_gaps_are_what_one_more_assignment_gains() -> None:
    _, symmetry, pair = pair_of((12, 12), "tanh")
    rested = ob.align(symmetry, pair[1], to=pair[0])
    assert set(rested.gaps) == {f.name for f in symmetry.factors}
    assert max(rested.gaps.values()) < 1e-5 * rested.cost
    objective, price = objective_for(symmetry, pair[1], pair[0], "weights", None, None, 0)
    state = State.identity(symmetry)
    gaps = gaps_of(objective, price, state, Assignment())
    held = price(objective.objective(state))
    for name, gap in gaps.items():
        gained = []
        for seed in range(200):
            trial = state.copy()
            trial.permutations[name] = np.random.default_rng(seed).permutation(12)
            gained.append(held - price(objective.objective(trial)))
        assert max(gained) <= gap + 1e-4
        assert gap > 0.01 * held


def test_costs_on_data_have_no_bound_but_gaps() -> None:
    net, symmetry, pair = pair_of((8, 8), "tanh")
    options = {"cost": "activations", "apply_fn": net.apply, "inputs": INPUTS}
    found = ob.align(symmetry, pair[1], to=pair[0], **options)
    assert found.exact == (found.bound is not None)
    assert all(gap >= 0 for gap in found.gaps.values())
    assert "gap" in str(found)
