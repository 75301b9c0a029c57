"""Networks with running statistics, and augmented inputs: what is learned, and what is not."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import onebasin as ob
from onebasin.infer.learner import estimate_state, in_batches, learner_of
from onebasin.nets.state import join, split

NUM = 48
METHODS = {
    "ensemble": {"num_networks": 2, "epochs": 2, "batch_size": 16},
    "swag": {"epochs": 1, "num_samples": 3, "batch_size": 16},
    "dropout": {"epochs": 1, "num_samples": 2, "batch_size": 16},
    "sgld": {"num_samples": 2, "num_warmup": 1, "thin": 2, "init": "random", "num_chains": 2},
    "sghmc": {"num_samples": 2, "num_warmup": 1, "thin": 2, "init": "random", "num_chains": 2},
    "mean_field": {"epochs": 2, "batch_size": 16},
}
FULL_BATCH = ("hmc", "nuts", "mclmc")


def images(num=NUM):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, num)
    found = rng.integers(0, 128, (num, 6, 6, 1)) + 100 * labels[:, None, None, None]
    return found.astype(np.uint8), labels


def network(norm="batch"):
    return ob.nets.scale_inputs(ob.nets.resnet((1,), 2, norm, 2, conv_bias=False), 110.0, 60.0)


def problem(**changes):
    settings = {"prior": ob.Normal(0.5), "augment": ob.augment.crop_and_flip(1)}
    return ob.Problem(network(), images(), **{**settings, **changes})


def test_the_unknowns_are_the_weights():
    own = problem()
    params = network().init(jax.random.key(0), images()[0][:1])
    weights, state = split(params)
    assert jax.tree.map(jnp.shape, own.shapes()) == jax.tree.map(jnp.shape, weights)
    assert own.has_state
    assert not problem().log_density(weights).shape
    # The prior is that of the weights alone.
    expected = sum(
        float(jnp.sum(-0.5 * (x / 0.5) ** 2 - jnp.log(0.5 * jnp.sqrt(2 * jnp.pi))))
        for x in jax.tree.leaves(weights)
    )
    np.testing.assert_allclose(own.log_prior(weights), expected, rtol=1e-5)
    # Nor do statistics enter the likelihood of what is being trained.
    moved = join(weights, jax.tree.map(lambda x: x + 1, state))
    outputs, _ = network().apply(moved, images()[0], train=True)
    fit = own.log_likelihoods(weights, outputs, own.targets).sum()
    np.testing.assert_allclose(own.log_likelihood(weights), fit, rtol=1e-5)


def test_estimated_statistics_are_means_over_batches():
    """Whatever momentum a network has: here that of its layers, and one of nine tenths."""
    net = ob.nets.resnet((1,), 2, "batch", 2)
    inputs = jnp.asarray(images(96)[0], jnp.float32) / 64
    weights = net.init(jax.random.key(0), inputs)["params"]
    batches = inputs.reshape(4, 24, *inputs.shape[1:])
    found = estimate_state(learner_of(net, inputs), weights, batches)["batch_stats"]["norm"]

    def stem(x):
        kernel = weights["conv"]["kernel"]
        names = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=names)
        return y + weights["conv"]["bias"]

    own = [stem(x) for x in batches]
    mean = jnp.mean(jnp.stack([y.mean((0, 1, 2)) for y in own]), 0)
    var = jnp.mean(jnp.stack([y.var((0, 1, 2)) for y in own]), 0)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(found["var"], var, rtol=1e-3)


def test_no_more_examples_are_taken_than_are_needed():
    assert in_batches(jnp.zeros((30, 2)), 30).shape == (1, 30, 2)
    assert in_batches(jnp.zeros((1203, 2)), 1203).shape == (2, 500, 2)
    assert in_batches(jax.ShapeDtypeStruct((7, 2), jnp.float32) and jnp.zeros((7, 2)), 7).shape == (
        1,
        7,
        2,
    )


@pytest.fixture(scope="module")
def found():
    """Every method on a network with running statistics, with augmentation."""
    own = problem()
    return {
        name: getattr(ob.infer, name)(jax.random.key(1), own, **options)
        for name, options in METHODS.items()
    }


@pytest.mark.parametrize("name", METHODS)
def test_every_method_gives_networks_that_predict(found, name):
    posterior = found[name]
    inputs, _ = images()
    options = {} if isinstance(posterior, ob.Draws) else {"num_samples": 2}
    probs = ob.predict(network().apply, posterior, inputs, key=jax.random.key(0), **options)
    assert np.isfinite(probs).all()
    parts = getattr(posterior, "components", (posterior,))
    for part in parts:
        tree = part.params if isinstance(part, ob.Draws) else part.mean
        assert set(tree) == {"params", "batch_stats"}


@pytest.mark.parametrize("name", METHODS)
def test_statistics_are_those_of_the_weights_and_have_no_spread(found, name):
    posterior = found[name]
    own = problem()
    if isinstance(posterior, ob.Draws):
        weights, state = split(posterior[0])
        expected = own.state_of(weights)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), state, expected)
        return
    part = getattr(posterior, "components", (posterior,))[0]
    assert not any(np.any(x) for x in jax.tree.leaves(part.std["batch_stats"]))
    drawn = part.sample(jax.random.key(0), 2).params["batch_stats"]
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a[1], b, rtol=1e-6), drawn, part.mean["batch_stats"]
    )


@pytest.mark.parametrize("name", ["ensemble", "sghmc", "swag"])
def test_a_training_with_augmentation_goes_on_where_it_stopped(name, tmp_path):
    options = {**METHODS[name], "chunk": 1}
    method = getattr(ob.infer, name)
    once = method(jax.random.key(2), problem(), run=tmp_path / "a", **options)
    again = method(jax.random.key(2), problem(), run=tmp_path / "a", **options)
    plain = method(jax.random.key(2), problem(), **METHODS[name])
    part = (lambda q: q.params) if isinstance(once, ob.Draws) else (lambda q: (q.mean, q.std))
    for other in (again, plain):
        assert jax.tree.all(jax.tree.map(np.array_equal, part(once), part(other)))
    other = problem(augment=ob.augment.crop_and_flip(2))
    with pytest.raises(ValueError, match="augmentation"):
        method(jax.random.key(2), other, run=tmp_path / "a", **options)


def test_an_augmentation_changes_what_is_learned():
    def train(**changes):
        options = METHODS["ensemble"]
        return ob.infer.ensemble(jax.random.key(3), problem(**changes), **options).params["params"]

    with_it, without = train(), train(augment=None)
    assert not jax.tree.all(jax.tree.map(np.array_equal, with_it, without))


@pytest.mark.parametrize("name", FULL_BATCH)
def test_samplers_of_all_data_take_no_augmentation(name):
    with pytest.raises(ValueError, match=rf"{name} looks at all data.*augment="):
        getattr(ob.infer, name)(jax.random.key(0), problem(), num_samples=1)


def test_what_looks_at_examples_one_by_one_says_that_they_meet():
    with pytest.raises(ValueError, match=r"running statistics, in which examples meet.*swag"):
        ob.infer.laplace(jax.random.key(0), problem(), epochs=1)
    with pytest.raises(ValueError, match=r"'local'.*take reparameterisation='weights'"):
        ob.infer.mean_field(jax.random.key(0), problem(), reparameterisation="local")


def test_the_number_of_examples_may_be_told():
    rows = jnp.arange(12)
    plain, more = problem(), problem(num_effective=10 * NUM)
    weights = plain.init(jax.random.key(0))
    batch = plain.take(rows)
    np.testing.assert_allclose(
        more.log_likelihood(weights, batch), 10 * plain.log_likelihood(weights, batch), rtol=1e-5
    )
    np.testing.assert_allclose(
        more.evaluated_log_density(weights), more.log_density(weights), rtol=1e-4
    )


def test_half_precision_is_for_learning():
    own, half = problem(), problem(precision="bfloat16")
    weights = own.init(jax.random.key(0))
    np.testing.assert_allclose(half.log_likelihood(weights), own.log_likelihood(weights), rtol=0.1)
    draws = ob.infer.ensemble(jax.random.key(0), half, **METHODS["ensemble"])
    assert {x.dtype for x in jax.tree.leaves(draws.params)} == {np.dtype(np.float32)}


def counted():
    calls = iter(range(1000))
    return lambda key, x: x + next(calls)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"augment": 3}, r"augment is int, expected a function"),
        ({"augment": lambda key, x: x[:, 1:]}, r"shape \(4, 5, 6, 1\).*of inputs of shape \(4, 6"),
        ({"augment": lambda key, x: x / 255}, r"type float32.*uint8.*same shape and type"),
        ({"augment": counted()}, r"different inputs for the same key"),
        ({"augment": lambda key, x: np.asarray(x)}, r"cannot be compiled"),
        ({"num_effective": 0}, r"num_effective=0"),
        ({"precision": "float8"}, r"precision='float8'.*'bfloat16'"),
    ],
)
def test_bad_settings_are_one_sentence(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        problem(**changes)


def test_a_schedule_may_be_any_that_optax_has():
    options = {"num_networks": 1, "epochs": 2, "batch_size": 16}
    for optimizer in (
        ob.infer.sgd(0.05),
        ob.infer.sgd(0.05, schedule="cosine", warmup=0.0, nesterov=False),
        ob.infer.adam(1e-3, schedule="constant"),
        ob.infer.sgd(0.05, schedule=optax.linear_schedule(0.05, 0.0, 6)),
    ):
        draws = ob.infer.ensemble(jax.random.key(0), problem(), optimizer=optimizer, **options)
        assert np.isfinite(draws.log_density).all()


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (lambda: ob.infer.sgd(0.1, schedule="square"), r"schedule='square'.*'triangular'"),
        (lambda: ob.infer.sgd(-0.1), r"learning_rate=-0.1"),
        (lambda: ob.infer.sgd(momentum=1.0), r"momentum=1.0"),
        (lambda: ob.infer.adam(warmup=1.5), r"warmup=1.5"),
        (
            lambda: ob.infer.sgd(schedule=lambda s: 0.1 - 0.06 * s).build(6),
            r"-0.0(2|19)\d* at step 2",
        ),
        (lambda: ob.infer.sgd(schedule=lambda s: 0.1 / (3.0 - s)).build(6), r"inf at step 3"),
    ],
)
def test_rates_are_looked_at_before_the_first_step(optimizer, message):
    with pytest.raises(ValueError, match=message):
        optimizer()


def test_sgd_is_that_of_the_formula():
    """Nesterov's rule with weight decay, in NumPy, on a linear network."""
    x, y = np.array([[1.0], [2.0]]), np.array([[1.0], [3.0]])
    net = ob.Net(lambda key, x: jnp.full(1, 0.5), lambda w, x: x * w)
    own = ob.Problem(net, (x, y), prior=ob.Normal(2.0), likelihood="gaussian", noise=1.0)
    optimizer = ob.infer.sgd(0.1, schedule="constant", warmup=0.0, momentum=0.5)
    draws = ob.infer.ensemble(
        jax.random.key(0), own, num_networks=1, epochs=3, batch_size=2, optimizer=optimizer
    )
    weight, velocity = 0.5, 0.0
    for _ in range(3):
        gradient = float(np.mean(x * (x * weight - y))) + weight / (2.0**2 * len(x))
        velocity = 0.5 * velocity + gradient
        weight -= 0.1 * (gradient + 0.5 * velocity)
    np.testing.assert_allclose(draws.params[0], [weight], rtol=1e-5)


def test_networks_of_other_runs_may_be_started_from():
    first = ob.infer.ensemble(jax.random.key(0), problem(), **METHODS["ensemble"])
    options = {**METHODS["ensemble"], "init": first}
    again = ob.infer.ensemble(jax.random.key(1), problem(), **options)
    assert set(again.params) == {"params", "batch_stats"}


def test_statistics_that_stay_are_those_that_the_network_begins_with():
    """One that moves, one that is frozen, and one that counts."""

    def init(key, x):
        state = {"mean": jnp.zeros(()), "frozen": jnp.full((), 7.0), "count": jnp.full((), 5.0)}
        return {"params": {"w": jnp.ones(())}, "batch_stats": state}

    def apply(params, x, *, train=False):
        old, out = params["batch_stats"], params["params"]["w"] * x
        if not train:
            return out
        moved = 0.7 * old["mean"] + 0.3 * jnp.mean(x)
        return out, {"batch_stats": {**old, "mean": moved, "count": old["count"] + 1}}

    net = ob.Net(init, apply)
    x = jnp.arange(12.0)[:, None]
    own = ob.Problem(net, (x, x), likelihood="gaussian", noise=1.0)
    found = own.state_of({"w": jnp.ones(())})["batch_stats"]
    np.testing.assert_allclose(found["mean"], jnp.mean(x), rtol=1e-5)
    assert (float(found["frozen"]), float(found["count"])) == (7.0, 5.0)
