import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob
from onebasin.align import channels
from onebasin.align.assignment import Assignment
from onebasin.align.pairing import Pairing
from onebasin.align.predictive import losses
from onebasin.align.solvers import solve
from onebasin.align.state import State
from onebasin.align.straight_through import straight_through
from onebasin.align.task import Task, leaves_of, push
from onebasin.align.thorough import thorough
from onebasin.posterior import Gaussian


def model(params, x):
    h = jnp.tanh(x @ params["w"] + params["b"])
    return jnp.tanh(h @ params["v"]) @ params["u"]


def network(seed):
    rng = np.random.default_rng(seed)
    shapes = {"w": (4, 6), "b": (6,), "v": (6, 5), "u": (5, 3)}
    return {k: jnp.asarray(rng.normal(size=s) / 2, jnp.float32) for k, s in shapes.items()}


X = jnp.asarray(np.random.default_rng(9).normal(size=(40, 4)), jnp.float32)
PARAMS = network(0)
SYMMETRY = ob.discover(model, PARAMS, X)
LABELS = jnp.argmax(model(PARAMS, X), axis=-1)


def loss(params):
    return jnp.mean((model(params, X) - model(PARAMS, X)) ** 2)


def task_for(moving, **more):
    paired = channels.weights(leaves_of(PARAMS), leaves_of(moving))
    objective = Pairing(SYMMETRY, paired.channels)
    return Task(SYMMETRY, objective, Assignment(), moving, PARAMS, loss_fn=loss, **more)


def test_the_pick_has_the_least_midpoint_loss():
    task = task_for(network(1), apply_fn=model, inputs=X)
    found = thorough(task, random_starts=3)
    names = [c.name for c in found.candidates]
    assert found.candidates[0].loss == min(c.loss for c in found.candidates)
    assert task.loss(found.best.state) == pytest.approx(found.candidates[0].loss)
    assert found.best.objective == pytest.approx(found.candidates[0].objective)
    assert [c.loss for c in found.candidates] == sorted(c.loss for c in found.candidates)
    assert {"identity", "forward", "activations", "correlation"} <= set(names)
    assert {"correlation, then weights", "random 3, then contributions"} <= set(names)
    # Every plain start alone, and with two costs; random ones with the costs only.
    assert len(names) == 4 * 3 + 3 * 2
    assert task.loss(found.best.state) <= task.loss(task.descent(task.starts).best.state)
    assert not found.skipped


def test_planted_elements_are_recovered():
    for seed in range(3):
        moving = SYMMETRY.act(SYMMETRY.random(jax.random.key(seed)), PARAMS)
        found = thorough(task_for(moving, apply_fn=model, inputs=X, seed=seed), random_starts=1)
        assert found.candidates[0].loss < 1e-10
        back = SYMMETRY.act(found.best.state.element(SYMMETRY), moving)
        for a, b in zip(leaves_of(back), leaves_of(PARAMS), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)


def test_refinement_is_one_more_candidate():
    task = task_for(network(2))
    plain = thorough(task, random_starts=2)
    refined = thorough(task, random_starts=2, refine=functools.partial(straight_through, steps=20))
    assert len(refined.candidates) == len(plain.candidates) + 1
    assert refined.candidates[0].loss <= plain.candidates[0].loss
    assert any("then straight-through" in c.name for c in refined.candidates)
    assert "activations were not matched" in refined.skipped[0]


def test_networks_drawn_from_gaussians_are_matched():
    q = Gaussian(PARAMS, 0.05)
    moving = push(SYMMETRY, SYMMETRY.random(jax.random.key(1)), q)
    leaves = [leaves_of(x) for x in (q.mean, q.std, moving.mean, moving.std)]
    objective = Pairing(SYMMETRY, channels.wasserstein(*leaves).channels)
    task = Task(
        SYMMETRY,
        objective,
        Assignment(),
        moving,
        q,
        cost="wasserstein",
        loss_fn=losses(model, (X, LABELS), num_samples=3),
        apply_fn=model,
        inputs=X,
    )
    found = thorough(task, random_starts=0, draws=2)
    names = {c.name for c in found.candidates}
    assert {"correlation of draw 2", "activations of draw 1, then weights"} <= names
    assert found.candidates[0].loss == pytest.approx(min(c.loss for c in found.candidates))
    assert task.loss(found.best.state) <= task.loss(State.identity(SYMMETRY))


def test_the_given_start_is_a_candidate():
    start = State.random(SYMMETRY, np.random.default_rng(0))
    found = thorough(task_for(network(1), starts=(start,)), random_starts=0)
    assert {"given 1", "given 1, then weights"} <= {c.name for c in found.candidates}


def test_costs_that_cannot_see_a_factor_are_named():
    def looped(params, x):
        def step(state):
            return state[0] - 1, jnp.tanh(x @ params["w"] + state[1] @ params["v"])

        start = 2, jnp.zeros((len(x), 3))
        return jnp.sum(jax.lax.while_loop(lambda state: state[0] > 0, step, start)[1], axis=-1)

    rng = np.random.default_rng(0)
    params = {"w": jnp.asarray(rng.normal(size=(4, 3)), "f"), "v": jnp.eye(3)}
    symmetry = ob.discover(looped, params, X)
    turned = symmetry.act(symmetry.random(jax.random.key(0)), params)
    objective = Pairing(symmetry, channels.weights(leaves_of(params), leaves_of(turned)).channels)
    task = Task(symmetry, objective, Assignment(), turned, params, apply_fn=looped, inputs=X)
    task = dataclasses.replace(task, loss_fn=lambda p: jnp.mean(looped(p, X) ** 2))
    found = thorough(task, random_starts=1)
    assert [c.name for c in found.candidates if "random" in c.name] == ["random 1, then weights"]
    assert len(found.skipped) == 3
    assert "no candidates by correlation: " in str(found)


def test_starts_may_end_below_the_identity():
    """Networks that are aligned already: a bad start is a candidate like any other."""
    found = thorough(task_for(PARAMS), random_starts=8)
    assert found.candidates[0].loss < 1e-12


def test_a_missing_loss_is_named():
    task = dataclasses.replace(task_for(network(1)), loss_fn=None)
    with pytest.raises(ValueError, match="search 'thorough' goes by the training loss"):
        solve(task, search="thorough")
    with pytest.raises(ValueError, match="no search 'through'"):
        solve(task, search="through")
