"""From scrambled draws back to the Gaussian they came from; and what HMC on digits becomes."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob
from onebasin.compact import selecting
from onebasin.engine import open_engine

INPUTS = jax.random.normal(jax.random.key(9), (30, 3))


def known(activation: str) -> tuple:
    """A network whose units are far apart, its group, and a Gaussian around it."""
    net = ob.nets.mlp(hidden=(5, 4), outputs=2, activation=activation)
    mean = jax.tree.map(lambda x: x + 0.3, net.init(jax.random.key(3), INPUTS))
    symmetry = ob.discover(net.apply, mean, INPUTS)
    factor = jax.tree.map(
        lambda x: 0.03 * jax.random.normal(jax.random.key(4), (2, *x.shape)), mean
    )
    return net, symmetry, ob.Gaussian(mean, 0.02, factor)


def scrambled(symmetry: ob.Symmetry, draws: ob.Draws, kinds: tuple[str, ...]) -> ob.Draws:
    keys = jax.random.split(jax.random.key(5), len(draws))
    elements = jax.vmap(lambda k: symmetry.random(k, kinds=kinds))(keys)
    return ob.push_forward(symmetry, elements, draws)


def test_a_gaussian_scrambled_by_permutations_and_signs_is_recovered() -> None:
    """tanh: the group is finite, so that nothing of the Gaussian is lost."""
    _, symmetry, truth = known("tanh")
    draws = scrambled(symmetry, truth.sample(jax.random.key(6), 400), ("permutation", "sign"))
    found = ob.compact(symmetry, draws, covariance="low-rank")
    back = ob.align(symmetry, found.posterior.mean, to=truth.mean)
    q = ob.push_forward(symmetry, back.element, found.posterior)
    for a, b, s in zip(*map(jax.tree.leaves, (q.mean, truth.mean, truth.variance())), strict=True):
        assert np.max(np.abs(a - b) / np.sqrt(s)) < 5 / np.sqrt(400)
    for a, b in zip(*map(jax.tree.leaves, (q.variance(), truth.variance())), strict=True):
        np.testing.assert_allclose(a, b, rtol=0.4)

    # Correlations too: the covariance along the true factor's directions.
    def along(q: ob.Gaussian, r: int) -> float:
        directions = jax.tree.map(lambda f: f[r], truth.factor)
        parts = zip(*map(jax.tree.leaves, (q.std, directions)), strict=True)
        diagonal = sum(float(jnp.sum((s * d) ** 2)) for s, d in parts)
        products = [
            np.tensordot(np.asarray(f).reshape(len(f), -1), np.ravel(d), 1)
            for f, d in zip(*map(jax.tree.leaves, (q.factor, directions)), strict=True)
        ]
        return diagonal + float(np.sum(np.sum(products, axis=0) ** 2))

    for r in range(2):
        assert along(q, r) == pytest.approx(along(truth, r), rel=0.3)


def test_scrambling_by_every_kind_changes_nothing() -> None:
    """ReLU: scalings have no spread that the function sees; what is fitted is the same."""
    _, symmetry, truth = known("relu")
    draws = truth.sample(jax.random.key(6), 60)
    plain = ob.compact(symmetry, draws).posterior
    moved = scrambled(symmetry, draws, ("permutation", "scaling", "sign"))
    again = ob.compact(symmetry, moved).posterior
    back = ob.align(symmetry, again.mean, to=plain.mean, scaling=None)
    again = ob.push_forward(symmetry, back.element, again)
    for a, b in zip(*map(jax.tree.leaves, (again, plain)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-2, atol=2e-3)


def test_many_variational_fits_become_one() -> None:
    _, symmetry, truth = known("relu")
    diagonal = ob.Gaussian(truth.mean, truth.std)
    elements = [symmetry.random(jax.random.key(i), kinds=("permutation",)) for i in range(4)]
    mixture = ob.Mixture([ob.push_forward(symmetry, g, diagonal) for g in elements])
    found = ob.compact(symmetry, mixture, scaling=None)
    back = ob.align(symmetry, found.posterior.mean, to=truth.mean, scaling=None)
    q = ob.push_forward(symmetry, back.element, found.posterior)
    for a, b in zip(*map(jax.tree.leaves, (q.mean, truth.mean)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    for a, b in zip(*map(jax.tree.leaves, (q.std, truth.std)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3)


@pytest.mark.parametrize("mode", [[0, 0], [0, 1], [0, 0, 0], [0, 1, 1], [0, 1, 1, 1], [0, 0, 1]])
def test_few_draws_are_enough(mode: list[int]) -> None:
    """Whatever their modes: two leave none to hold out, and the print says what that means."""
    net, symmetry, truth = known("relu")
    sampled = truth.sample(jax.random.key(6), len(mode))
    found = ob.compact(
        symmetry,
        ob.Draws(sampled.params, np.array(mode)),
        apply_fn=net.apply,
        inputs=INPUTS,
        num_starts=1,
    )
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(found.posterior))
    assert np.isfinite(found.choice.score) == (len(mode) > 2)
    said = "two draws leave none to hold out: cost, scaling, covariance, temperature, stretch"
    assert (said in str(found)) == (len(mode) == 2)


def test_two_draws_are_fitted_as_without_the_model() -> None:
    net, symmetry, truth = known("relu")
    draws = truth.sample(jax.random.key(6), 2)
    options = {"temperature": 0.5, "covariance": "low-rank"}
    found = ob.compact(symmetry, draws, apply_fn=net.apply, inputs=INPUTS, **options)
    plain = ob.compact(symmetry, draws, **options)
    for a, b in zip(*map(jax.tree.leaves, (found.posterior, plain.posterior)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    assert found.unchosen == ("cost", "scaling", "stretch of the mean")
    assert plain.unchosen == ()


def test_a_mixture_over_what_symmetry_does_not_explain() -> None:
    _, symmetry, truth = known("tanh")
    other = ob.Gaussian(jax.tree.map(lambda m: 2 * m, truth.mean), truth.std)
    parts = [q.sample(jax.random.key(i), 20) for i, q in enumerate((truth, other))]
    draws = ob.Draws.concatenate(parts, renumber=True)
    found = ob.compact(symmetry, draws, mixture=True)
    assert isinstance(found.posterior, ob.Mixture)
    assert len(found.posterior.components) == 2


def test_distilling_finds_a_gaussian_that_predicts_alike(tmp_path: Path) -> None:
    net, symmetry, truth = known("relu")
    draws = truth.sample(jax.random.key(6), 40)
    x = jax.random.normal(jax.random.key(1), (100, 3))
    with open_engine("local", directory=tmp_path) as engine:
        found = ob.compact(
            symmetry,
            scrambled(symmetry, draws, ("permutation",)),
            apply_fn=net.apply,
            inputs=x,
            cost="weights",
            covariance="diagonal",
            temperature=1.0,
            refine="distil",
            steps=100,
            num_starts=1,
            engine=engine,
        )
    assert list(tmp_path.glob("align/*.safetensors"))
    assert found.flavour == "distilled"
    assert found.moments is not found.posterior
    assert found.rows[-1].step.startswith("distilled")
    assert found.rows[-1].total_variation < 0.02
    assert found.rows[-1].nats <= found.rows[0].nats
    text = str(found)
    assert all(word in text for word in ("distilled", "moments", "agreement"))
    assert repr(found) == f"Compact({found.posterior!r}, distilled)"


def test_a_mixture_is_fitted_with_what_was_asked_for_and_chosen() -> None:
    net, symmetry, truth = known("tanh")
    other = ob.Gaussian(jax.tree.map(lambda m: 1.2 * m, truth.mean), truth.std, truth.factor)
    parts = [q.sample(jax.random.key(i), 12) for i, q in enumerate((truth, other))]
    found = ob.compact(
        symmetry,
        ob.Draws.concatenate(parts, renumber=True),
        apply_fn=net.apply,
        inputs=INPUTS,
        cost="weights",
        covariance="low-rank",
        rank=2,
        shrinkage=0.25,
        temperature=0.5,
        num_starts=1,
        mixture=True,
    )
    assert found.choice is not None
    assert [q.rank for q in found.posterior.components] == [2, 2]
    assert f"of each mode: covariance x 0.5, mean x {found.choice.stretch:g}" in str(found)
    for number, q in enumerate(found.posterior.components):
        own = found.alignment.draws.of_mode(number)
        plain = ob.fit_gaussian(own, "low-rank", rank=2, shrinkage=0.25, temperature=0.5)
        stretched = jax.tree.map(lambda m: found.choice.stretch * m, plain.mean)
        for a, b in zip(jax.tree.leaves(q.mean), jax.tree.leaves(stretched), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        for a, b in zip(*map(jax.tree.leaves, (q.variance(), plain.variance())), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3)


def test_the_stretch_of_a_mixture_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever held-out draws choose, what is printed is what was done."""
    net, symmetry, truth = known("tanh")
    draws = ob.Draws(truth.sample(jax.random.key(0), 16).params, np.arange(16) % 2)
    monkeypatch.setitem(selecting.choose.__kwdefaults__, "stretches", (1.2,))
    options = {"apply_fn": net.apply, "inputs": INPUTS, "cost": "weights", "num_starts": 1}
    found = ob.compact(symmetry, draws, mixture=True, covariance="diagonal", **options)
    assert "mean x 1.2" in str(found)
    own = found.alignment.draws.of_mode(0).mean()
    for a, b in zip(*map(jax.tree.leaves, (found.posterior.components[0].mean, own)), strict=True):
        np.testing.assert_allclose(a, 1.2 * b, rtol=1e-5)


NET, SYMMETRY, TRUTH = known("relu")
DRAWS = TRUTH.sample(jax.random.key(0), 4)
SEEN = {"apply_fn": NET.apply, "inputs": INPUTS}
MIXTURE = ob.Mixture([TRUTH, TRUTH])
BAD = {
    "one draw": ((SYMMETRY, DRAWS[:1]), {}, "one draw has no spread"),
    "refine": ((SYMMETRY, DRAWS), {"refine": "more"}, "expected None or 'distil'"),
    "no model": ((SYMMETRY, DRAWS), {"inputs": INPUTS}, "got no apply_fn"),
    "no inputs": ((SYMMETRY, DRAWS), {"apply_fn": NET.apply}, "got no inputs"),
    "distil blind": ((SYMMETRY, DRAWS), {"refine": "distil"}, "needs Draws, apply_fn= and inputs="),
    "not draws": ((SYMMETRY, "draws"), {}, "holds a str, expected Draws or a tree of stacked"),
    "networks": ((SYMMETRY, list(DRAWS)), {}, r"pass Draws\.stack\(networks\)"),
    "one network": ((SYMMETRY, DRAWS[0]), {}, "first axis of every leaf is the draw"),
    "covariance": ((SYMMETRY, DRAWS), {"covariance": "full"}, "expected one of"),
    "typing error": ((SYMMETRY, DRAWS), {"stpes": 3}, "no option 'stpes'; did you mean 'steps'"),
    "no distilling": ((SYMMETRY, DRAWS), {"steps": 3}, "got steps= without refine='distil'"),
    "starts": (
        (SYMMETRY, DRAWS),
        {"starts": {"mean": TRUTH}},
        "got starts= without refine='distil'",
    ),
    "distilled rank": (
        (SYMMETRY, DRAWS),
        {"distilled_rank": 2},
        "got distilled_rank= without refine",
    ),
    "num_starts": ((SYMMETRY, DRAWS), {"num_starts": 2}, "got num_starts= without apply_fn= and"),
    "rank": ((SYMMETRY, DRAWS), {"rank": 2}, "got rank= for a diagonal covariance"),
    "shrinkage": (
        (SYMMETRY, DRAWS),
        {"shrinkage": "auto", "covariance": "diagonal", **SEEN},
        "got shrinkage= for a diagonal covariance",
    ),
    "rank of all": (
        (SYMMETRY, DRAWS),
        {"rank": 4, "covariance": "low-rank", **SEEN},
        "got rank=4 and 4 draws: expected 1 to 3",
    ),
    "rank of a mode": (
        (SYMMETRY, ob.Draws(DRAWS.params, np.array([0, 0, 1, 1]))),
        {"rank": 2, "covariance": "low-rank", "mixture": True, **SEEN},
        "got rank=2 and 2 draws",
    ),
    "a mode of one": (
        (SYMMETRY, ob.Draws(DRAWS.params, np.array([0, 0, 0, 1]))),
        {"mixture": True, **SEEN},
        "mode 1 has one draw",
    ),
    "temperature": ((SYMMETRY, DRAWS), {"temperature": -1.0, **SEEN}, "temperature=-1.0, expected"),
    "model of a mixture": ((SYMMETRY, MIXTURE), SEEN, "got apply_fn=, inputs= with a Mixture"),
    **{
        f"{name} of a mixture": ((SYMMETRY, MIXTURE), {name: value}, f"got {name}= with")
        for name, value in {
            "covariance": "low-rank",
            "rank": 1,
            "shrinkage": 0.5,
            "temperature": 0.5,
            "num_starts": 2,
            "starts": {"mean": TRUTH},
        }.items()
    },
}


def test_a_mixture_can_be_aligned_on_data() -> None:
    moved = [ob.push_forward(SYMMETRY, SYMMETRY.random(jax.random.key(i)), TRUTH) for i in (1, 2)]
    found = ob.compact(SYMMETRY, ob.Mixture([TRUTH, *moved]), cost="activations", **SEEN)
    assert found.alignment.cost_name == "activations"
    truth = ob.canonicalize(SYMMETRY, TRUTH.mean, order=None)
    back = ob.align(SYMMETRY, found.posterior.mean, to=truth)
    assert back.cost < 0.01 * sum(float(jnp.sum(x**2)) for x in jax.tree.leaves(truth))


def test_stacked_parameters_are_draws() -> None:
    found, same = (ob.compact(SYMMETRY, draws).posterior for draws in (DRAWS, DRAWS.params))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_sentence(name: str) -> None:
    arguments, options, message = BAD[name]
    with pytest.raises((ValueError, TypeError), match=message):
        ob.compact(*arguments, **options)


@pytest.mark.parametrize("refine", [None, "distil"])
@pytest.mark.parametrize("shape", ["one output", "no class axis"])
def test_a_regression_is_no_classification(refine: str | None, shape: str) -> None:
    """The softmax of one output is 1 whatever it is: any temperature would do."""
    net = ob.nets.mlp(hidden=(4,), outputs=1)
    apply_fn = net.apply if shape == "one output" else lambda p, x: net.apply(p, x)[:, 0]
    params = jax.vmap(lambda k: net.init(k, INPUTS))(jax.random.split(jax.random.key(0), 8))
    symmetry = ob.discover(net.apply, net.init(jax.random.key(0), INPUTS), INPUTS)
    with pytest.raises(ValueError, match=r"For a regression leave out apply_fn= and inputs="):
        ob.compact(symmetry, ob.Draws(params), apply_fn=apply_fn, inputs=INPUTS, refine=refine)
    assert ob.compact(symmetry, ob.Draws(params)).posterior.rank == 0


@pytest.mark.parametrize(
    ("inputs", "said"),
    [(INPUTS.at[3].set(jnp.nan), "NaN or infinite"), (INPUTS[:0], "no examples")],
)
def test_inputs_are_looked_at_by_every_cost(inputs: jax.Array, said: str) -> None:
    net, symmetry, q = known("relu")
    draws = q.sample(jax.random.key(0), 8)
    with pytest.raises(ValueError, match=said):
        ob.compact(symmetry, draws, apply_fn=net.apply, inputs=inputs, cost="weights")


def test_half_precision_is_tempered_as_single_is() -> None:
    net, symmetry, q = known("relu")
    draws = q.sample(jax.random.key(0), 12)
    half = ob.Draws(jax.tree.map(lambda x: x.astype(jnp.float16), draws.params))
    found = [
        ob.compact(
            symmetry, each, apply_fn=net.apply, inputs=x, cost="weights", covariance="diagonal"
        )
        for each, x in ((draws, INPUTS), (half, INPUTS.astype(jnp.float16)))
    ]
    wide, narrow = (float(jnp.mean(f.posterior.std["Dense_0"]["kernel"])) for f in found)
    assert 0.2 < narrow / wide < 5
