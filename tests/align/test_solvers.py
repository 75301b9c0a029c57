import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo import CASES, as_float64
from zoo.case import normal, plain

import onebasin as ob
from onebasin.align import channels
from onebasin.align.assignment import Assignment
from onebasin.align.data_cost import DataCost
from onebasin.align.frank_wolfe import along, ascend, best_step, frank_wolfe, nearest
from onebasin.align.gauge import scaling_element
from onebasin.align.pairing import Pairing
from onebasin.align.predictive import losses
from onebasin.align.relaxed import Relaxed, act_softly, hard, signatures
from onebasin.align.sinkhorn import normalise, sinkhorn
from onebasin.align.solvers import SOLVERS, solve
from onebasin.align.state import State
from onebasin.align.straight_through import straight_through
from onebasin.align.task import Task, leaves_of, push, same
from onebasin.posterior import Gaussian

# Plain units, signs, all signs at once, dependent units, a factor on two sides of one parameter.
NETS = ("mlp-relu", "mlp-tanh", "mlp-layernorm-linear", "ensemble-mean", "rnn-tanh", "attention")
FEW: dict[str, Any] = {
    "descent": SOLVERS["descent"],
    "frank-wolfe": frank_wolfe,
    "straight-through": functools.partial(straight_through, steps=5),
    "sinkhorn": functools.partial(sinkhorn, steps=5),
}


def attention(params, x):
    """Units that depend on heads, and a product with three sides that move."""
    stream = jnp.tanh(x @ params["in"])
    query, key, value = (jnp.einsum("bti,ihd->bthd", stream, params[k]) for k in "qkv")
    scores = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", query, key))
    return jnp.einsum("bhts,bshd,hdo->bto", scores, value, params["out"])


@functools.cache
def network(name):
    if name == "attention":
        sides = {"in": (3, 4), "q": (4, 2, 3), "k": (4, 2, 3), "v": (4, 2, 3), "out": (2, 3, 2)}
        apply_fn, params, inputs = plain(attention, sides, normal(0, 5, 4, 3))
    else:
        (case,) = [c for c in CASES if c.name == name]
        apply_fn, params, inputs = case.build()
    return apply_fn, params, inputs, ob.discover(apply_fn, params, inputs)


@functools.cache
def teacher(name):
    """The squared distance from what the network says."""
    apply_fn, params, inputs, _ = network(name)
    said = apply_fn(params, inputs)
    return lambda p: jnp.mean((apply_fn(p, inputs) - said) ** 2)


def without_scale(symmetry, params):
    return symmetry.act(scaling_element(symmetry, params, "min-mass"), params)


def task_for(name, moving, cost="weights", **more):
    apply_fn, params, inputs, symmetry = network(name)
    reference, moving = without_scale(symmetry, params), without_scale(symmetry, moving)
    if cost == "weights":
        paired = channels.weights(leaves_of(reference), leaves_of(moving))
        objective: Any = Pairing(symmetry, paired.channels)
    else:
        at_work = DataCost(symmetry, cost, apply_fn, params, inputs, 1000)
        objective = at_work.objective(reference, moving)
    return Task(symmetry, objective, Assignment(), moving, reference, loss_fn=teacher(name), **more)


def near(name, seed, spread=0.5):
    """Another network: this one with noise, and units in another order."""
    _, params, _, symmetry = network(name)
    rng = np.random.default_rng(seed)
    noisy = jax.tree.map(
        lambda x: x + jnp.asarray(spread * np.std(x) * rng.normal(size=x.shape), x.dtype), params
    )
    return symmetry.act(symmetry.random(jax.random.key(seed)), noisy)


def any_state(symmetry, seed):
    rng = np.random.default_rng(seed)
    state = State.random(symmetry, rng)
    state.signs = {k: rng.choice([-1, 1], v.shape).astype(np.int8) for k, v in state.signs.items()}
    return state


def largest_gap(a, b):
    return max(np.abs(x - y).max() for x, y in zip(leaves_of(a), leaves_of(b), strict=True))


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_planted_elements_are_recovered(name, solver):
    _, params, _, symmetry = network(name)
    for seed in range(2):
        moved = symmetry.act(symmetry.random(jax.random.key(seed)), params)
        task = task_for(name, moved, seed=seed)
        found = FEW[solver](task)
        back = symmetry.act(found.best.state.element(symmetry), task.moving)
        assert largest_gap(back, task.reference) < 1e-4
        assert found.best.objective == pytest.approx(task.objective.objective(found.best.state))


@pytest.mark.parametrize("cost", ["weights", "contributions", "activations"])
@pytest.mark.parametrize("name", ["mlp-tanh", "ensemble-mean"])
def test_the_relaxation_agrees_on_permutations(name, cost):
    task = task_for(name, near(name, 0), cost)
    for seed in range(3):
        state = any_state(task.symmetry, seed)
        relaxed = Relaxed(task.objective, state)
        matrices = relaxed.hard(state)
        assert relaxed.value(matrices) == pytest.approx(task.objective.objective(state), rel=1e-4)
        back = nearest(relaxed, matrices, state, task.assignment)
        for k in relaxed.signatures:
            np.testing.assert_array_equal(back.permutations[k], state.permutations[k])
        if cost == "weights":
            assert same(back, state)


@pytest.mark.parametrize("name", NETS)
def test_gradients_of_the_relaxation_are_its_slopes(name):
    task = task_for(name, near(name, 0))
    relaxed = Relaxed(task.objective, any_state(task.symmetry, 0))
    rng = np.random.default_rng(0)
    point, direction = (
        {
            k: {s: rng.normal(size=x.shape) for s, x in own.items()}
            for k, own in relaxed.barycentre().items()
        }
        for _ in range(2)
    )
    gradient = relaxed.gradient(point)
    slope = sum(np.vdot(g, direction[k][s]) for k, own in gradient.items() for s, g in own.items())
    ends = [
        relaxed.value(
            {k: {s: x + step * direction[k][s] for s, x in own.items()} for k, own in point.items()}
        )
        for step in (1e-5, -1e-5)
    ]
    assert slope == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5)


@pytest.mark.parametrize("name", NETS)
def test_soft_action_of_permutations_is_the_action(name):
    _, params, _, symmetry = network(name)
    state = any_state(symmetry, 1)
    soft = {k: hard(state, k, signatures(symmetry, k)) for k in symmetry.permutable}
    moved = act_softly(symmetry, soft, state, jax.tree.leaves(params))
    assert largest_gap(moved, symmetry.act(state.element(symmetry), params)) < 1e-6


@pytest.mark.parametrize("name", ["mlp-tanh", "rnn-tanh", "attention"])
def test_line_search_is_exact(name):
    task = task_for(name, near(name, 2))
    held = State.identity(task.symmetry)
    relaxed = Relaxed(task.objective, held)
    point = relaxed.barycentre()
    vertex = relaxed.hard(any_state(task.symmetry, 5))

    def at(step):
        return {
            k: {s: (1 - step) * x + step * vertex[k][s] for s, x in own.items()}
            for k, own in point.items()
        }

    direction = {k: {s: vertex[k][s] - x for s, x in own.items()} for k, own in point.items()}
    gradient = relaxed.gradient(point)
    slope = sum(np.vdot(g, direction[k][s]) for k, own in gradient.items() for s, g in own.items())
    line = along(relaxed, point, direction, relaxed.value(point), float(slope))
    assert len(line) == relaxed.degree + 1
    grid = np.linspace(0, 1, 101)
    values = np.array([relaxed.value(at(step)) for step in grid])
    np.testing.assert_allclose(np.polynomial.polynomial.polyval(grid, line), values, atol=1e-8)
    assert relaxed.value(at(best_step(line))) >= values.max() - 1e-9


@pytest.mark.parametrize(
    ("coefficients", "best"),
    [((0, 1), 1), ((0, -1), 0), ((0, 1, -1), 0.5), ((0, 1, 1), 1), ((5,), 0), ((0, 0, 3, -4), 0.5)],
)
def test_best_step_of_known_polynomials(coefficients, best):
    assert best_step(np.array(coefficients, float)) == pytest.approx(best)


@pytest.mark.parametrize("name", ["mlp-relu", "mlp-tanh", "ensemble-mean"])
def test_frank_wolfe_never_falls_below_its_start(name):
    for seed in range(3):
        task = task_for(name, near(name, seed, spread=1.0))
        relaxed = Relaxed(task.objective, State.identity(task.symmetry))
        point, values = relaxed.barycentre(), []
        for _ in range(5):
            values.append(relaxed.value(point))
            held = State.identity(task.symmetry)
            point, _ = ascend(relaxed, point, held, task.assignment, 1, 1e-6)
        assert all(b >= a - 1e-9 for a, b in itertools.pairwise(values))
        start = any_state(task.symmetry, seed)
        for given in (start, task.descent(["identity"]).best.state):
            found = frank_wolfe(dataclasses.replace(task, starts=(given,)))
            assert found.best.objective >= task.objective.objective(given) - 1e-6
        assert frank_wolfe(task).best.objective >= task.objective.objective(
            State.identity(task.symmetry)
        )


def test_frank_wolfe_on_a_cost_on_data():
    _, params, _, symmetry = network("mlp-tanh")
    moved = symmetry.act(symmetry.random(jax.random.key(0)), params)
    task = task_for("mlp-tanh", moved, "contributions")
    back = symmetry.act(frank_wolfe(task).best.state.element(symmetry), task.moving)
    assert largest_gap(back, task.reference) < 1e-4


def test_sinkhorn_matrices_are_doubly_stochastic():
    logits = jax.random.normal(jax.random.key(0), (6, 6)) / 0.3
    matrix = np.asarray(normalise(logits, 200))
    assert (matrix > 0).all()
    np.testing.assert_allclose(matrix.sum(axis=0), 1, atol=1e-5)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-4)
    turned = np.roll(np.eye(6), 2, axis=0)
    np.testing.assert_allclose(normalise(logits + 60 * turned), turned, atol=1e-5)


@pytest.mark.parametrize("solver", [straight_through, sinkhorn])
@pytest.mark.parametrize("name", ["mlp-relu", "mlp-tanh", "ensemble-mean"])
def test_midpoint_loss_falls_from_a_bad_start(name, solver):
    start = any_state(network(name)[3], 0)
    task = task_for(name, near(name, 0, spread=0.1), starts=(start,))
    found = solver(task, steps=120)
    assert task.loss(found.best.state) < 0.9 * task.loss(start)


@pytest.mark.parametrize("solver", ["straight-through", "sinkhorn"])
def test_midpoint_loss_never_rises(solver):
    for name in ("mlp-relu", "mlp-layernorm-linear"):
        task = task_for(name, near(name, 1, spread=1.0))
        start = task.first()
        found = FEW[solver](task)
        assert task.loss(found.best.state) <= task.loss(start)


@pytest.mark.parametrize("solver", SOLVERS)
def test_function_is_unchanged(solver, float64):
    apply_fn, params, inputs, symmetry = network("mlp-tanh")
    params, inputs = as_float64((params, inputs))
    other = jax.tree.map(lambda x: x[::-1] * 0.9, params)
    paired = channels.weights(leaves_of(params), leaves_of(other))
    objective = Pairing(symmetry, paired.channels)
    task = Task(symmetry, objective, Assignment(), other, params, loss_fn=teacher("mlp-tanh"))
    moved = symmetry.act(FEW[solver](task).best.state.element(symmetry), other)
    np.testing.assert_allclose(apply_fn(moved, inputs), apply_fn(other, inputs), atol=1e-10)


@pytest.mark.parametrize("solver", ["straight-through", "sinkhorn"])
def test_gaussians_meet_half_way(solver):
    apply_fn, params, inputs, symmetry = network("mlp-tanh")
    labels = jnp.argmax(apply_fn(params, inputs), axis=-1)
    rng = np.random.default_rng(0)
    std = jax.tree.map(lambda x: jnp.asarray(rng.uniform(0.01, 0.1, x.shape), x.dtype), params)
    reference = Gaussian(params, std, jax.tree.map(lambda x: 0.01 * x[None], params))
    planted = symmetry.random(jax.random.key(0))
    moving = push(symmetry, planted, reference)
    paired = channels.wasserstein(*map(leaves_of, (params, std, moving.mean, moving.std)))
    objective = Pairing(symmetry, paired.channels)
    loss_fn = losses(apply_fn, (inputs, labels), num_samples=2)
    start = any_state(symmetry, 1)
    task = Task(
        symmetry,
        objective,
        Assignment(),
        moving,
        reference,
        cost="wasserstein",
        starts=(start,),
        loss_fn=loss_fn,
        path="independent",
    )
    found = FEW[solver](task)
    assert task.loss(found.best.state) <= task.loss(start)
    matched = dataclasses.replace(task, starts=("identity", "forward"))
    back = push(symmetry, matched.first().element(symmetry), moving)
    assert largest_gap((back.mean, back.std), (params, std)) < 1e-5
    assert task.loss(FEW[solver](matched).best.state) <= task.loss(matched.first())


def test_one_call_for_all():
    task = task_for("mlp-relu", near("mlp-relu", 0))
    assert same(solve(task).best.state, task.descent(task.starts).best.state)
    assert solve(task).start.startswith("coordinate descent from ")
    assert solve(task, "frank-wolfe").start.startswith("Frank-Wolfe from the barycentre, ")
    assert "midpoint loss" in FEW["sinkhorn"](task).start


@pytest.mark.parametrize("solver", ["straight-through", "sinkhorn"])
def test_as_many_steps_as_asked_for(solver):
    task = task_for("mlp-relu", near("mlp-relu", 0))
    assert ", 3 steps" in solve(task, solver, steps=3).start
    assert any(", 2 steps" in c.name for c in solve(task, solver, "thorough", 2).candidates)


@pytest.mark.parametrize(("solver", "steps"), [("descent", 5), ("sinkhorn", 0)])
def test_steps_that_cannot_be_taken(solver, steps):
    task = task_for("mlp-relu", near("mlp-relu", 0))
    with pytest.raises(ValueError, match="expected a step or more of 'frank-wolfe'"):
        solve(task, solver, steps=steps)


@pytest.mark.parametrize(
    ("loss_fn", "solver", "message"),
    [
        (None, "straight-through", "solver 'straight-through' goes by the training loss"),
        (None, "sinkhorn", "solver 'sinkhorn' goes by the training loss"),
        (lambda p: p["Dense_0"]["bias"], "sinkhorn", r"array of shape \(5,\)"),
        (lambda p: {"error": 1.0}, "straight-through", "a dictionary of 'error', expected"),
        (None, "franc-wolfe", "did you mean 'frank-wolfe'"),
    ],
)
def test_bad_input_is_named(loss_fn, solver, message):
    task = dataclasses.replace(task_for("mlp-relu", near("mlp-relu", 0)), loss_fn=loss_fn)
    with pytest.raises(ValueError, match=message):
        solve(task, solver)
