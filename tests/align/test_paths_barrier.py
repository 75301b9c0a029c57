import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from onebasin import nets
from onebasin.align.barrier import barrier
from onebasin.align.bend import bend
from onebasin.align.predictive import best_temperature, losses, marginal_loss, nll
from onebasin.posterior import Gaussian, Mixture


def well(w):
    return jnp.sum((w**2 - 1) ** 2)


def linear(params, x):
    return x @ params["w"]


def classes(n=7, seed=0):
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.normal(size=(n, 2)), "f"), jnp.asarray(rng.integers(0, 3, n))


def weights(seed):
    return {"w": jnp.asarray(np.random.default_rng(seed).normal(size=(2, 3)), "f")}


def test_height_above_the_chord_of_a_known_curve():
    """On the line from 1 to -2 the loss is ((1 - 3t)^2 - 1)^2, the chord 9 t."""
    found = barrier(well, jnp.ones(1), jnp.full(1, -2.0), points=31)
    t = np.linspace(0, 1, 31)
    np.testing.assert_allclose(found.t, t, rtol=1e-6)
    np.testing.assert_allclose(found.curve, ((1 - 3 * t) ** 2 - 1) ** 2, atol=1e-5)
    np.testing.assert_allclose(found.reference, 9 * t, atol=1e-5)
    expected = np.max(((1 - 3 * t) ** 2 - 1) ** 2 - 9 * t)
    np.testing.assert_allclose(found.height, expected, atol=1e-5)


def test_a_convex_loss_has_no_barrier():
    assert barrier(jnp.sum, jnp.ones(1), jnp.zeros(1)).height == 0


def test_several_losses_at_once_and_as_text():
    found = barrier(lambda w: {"one": well(w), "two": 2 * well(w)}, jnp.ones(1), -jnp.ones(1))
    assert (found.height["one"], found.height["two"]) == (1, 2)
    assert str(found).splitlines()[2].split() == ["two", "0", "0", "2", "2"]
    assert repr(found) == "Barrier(11 points, height: one 1, two 2)"
    jax.jit(lambda found: repr(found) and found.t)(found)


def test_expected_loss_of_gaussians():
    """E (w - 1)^2 = (m - 1)^2 + s^2."""
    a, b = Gaussian(jnp.zeros(1), 1.0), Gaussian(jnp.ones(1) * 2, 3.0)
    found = barrier(lambda w: jnp.sum((w - 1) ** 2), a, b, points=3, num_samples=4000)
    np.testing.assert_allclose(found.curve, [2, 4, 10], rtol=0.15)
    mixture = barrier(lambda w: jnp.sum((w - 1) ** 2), a, b, 3, "mixture", num_samples=50)
    assert float(mixture.height) < 1e-5


PLAIN = {
    "a Python float": lambda w: float(well(w)),
    "NumPy": lambda w: np.sum((np.asarray(w) ** 2 - 1) ** 2),
    "a branch on a value": lambda w: well(w) if w[0] > -5 else 0.0,
    "a dictionary": lambda w: {"loss": float(well(w))},
}


@pytest.mark.parametrize("name", PLAIN)
def test_losses_that_cannot_be_traced_are_called_for_each_point(name):
    networks = (jnp.ones(2), jnp.full(2, -2.0))
    gaussians = (Gaussian(networks[0], 0.1), Gaussian(networks[1], 0.1))
    for (a, b), path in ((networks, "geodesic"), (gaussians, "geodesic"), (gaussians, "mixture")):
        found = barrier(PLAIN[name], a, b, 4, path, num_samples=3)
        expected = barrier(well, a, b, 4, path, num_samples=3)
        curve = found.curve["loss"] if isinstance(found.curve, dict) else found.curve
        np.testing.assert_allclose(curve, expected.curve, rtol=1e-5)


def test_random_numbers_are_common_to_all_points():
    q = Gaussian(jnp.ones(3), 0.5)
    found = barrier(well, q, q, num_samples=3, key=jax.random.key(7))
    np.testing.assert_allclose(found.curve, found.curve[0], rtol=1e-5)
    other = barrier(well, q, q, num_samples=3, key=jax.random.key(8))
    assert abs(float(other.curve[0] - found.curve[0])) > 1e-3


@pytest.mark.parametrize("batch_size", [3, 100])
def test_losses_are_those_of_all_examples(batch_size):
    train, test = classes(), classes(4, seed=1)
    loss = losses(linear, train, test, batch_size=batch_size)
    found = loss(weights(0))
    for name, (x, y) in (("train", train), ("test", test)):
        log_probs = jax.nn.log_softmax(linear(weights(0), x))
        np.testing.assert_allclose(
            found[f"{name} loss"], -np.mean(np.asarray(log_probs)[np.arange(len(y)), y]), rtol=1e-5
        )
        assert found[f"{name} error"] == np.float32(np.mean(np.argmax(log_probs, -1) != y))


def test_marginal_loss_is_that_of_the_mean_probability():
    x, y = classes()
    q, key = Gaussian(weights(0), 0.7), jax.random.key(3)
    found = marginal_loss(linear, x, y, num_samples=5, batch_size=3)(q, key)
    draws = q.sample(jax.random.clone(key), 5)
    probs = jnp.mean(jax.nn.softmax(jax.vmap(linear, (0, None))(draws.params, x)), axis=0)
    np.testing.assert_allclose(
        found["loss"], -jnp.mean(jnp.log(probs[jnp.arange(len(y)), y])), rtol=1e-5
    )
    assert found["error"] == np.float32(np.mean(np.argmax(probs, -1) != y))
    of_draws = marginal_loss(linear, x, y, num_samples=1)(draws)
    np.testing.assert_allclose(of_draws["loss"], found["loss"], rtol=1e-5)


def test_marginal_loss_of_a_mixture_mixes_probabilities():
    x, y = classes()
    a, b = Gaussian(weights(0), 0.1), Gaussian(weights(1), 0.1)
    loss = marginal_loss(linear, x, y, num_samples=4)
    parts = [jnp.exp(loss.log_predictive(q)[""]) for q in (a, b)]
    expected = -jnp.mean(jnp.log(0.2 * parts[0] + 0.8 * parts[1])[jnp.arange(len(y)), y])
    np.testing.assert_allclose(loss(Mixture([a, b], [0.2, 0.8]))["loss"], expected, rtol=1e-5)


@pytest.mark.parametrize("pieces", [{"num_samples": 16}, {"batch_size": 250}])
def test_a_gradient_holds_one_draw_and_one_batch_at_a_time(pieces):
    net = nets.mlp(hidden=(100,) * 5, outputs=3)
    x, y = jnp.ones((4000, 5)), jnp.zeros(4000, int)
    q = Gaussian(net.init(jax.random.key(0), x), 0.1)

    def bytes_held(**kwargs):
        loss = losses(net.apply, (x, y), **{"num_samples": 1, "batch_size": 4000} | kwargs)
        gradient = jax.jit(jax.grad(lambda q: loss(q)["train loss"]))
        return gradient.lower(q).compile().memory_analysis().temp_size_in_bytes

    one = bytes_held()
    assert one > 4000 * 100 * 5 * 4
    assert bytes_held(**pieces) < (2 * one if "num_samples" in pieces else one / 2)


def test_barrier_of_the_marginal_loss_has_its_ends():
    train, test = classes(), classes(4, seed=1)
    loss = losses(linear, train, test, num_samples=4)
    a, b = Gaussian(weights(0), 0.1), Gaussian(weights(1), 0.3)
    found = barrier(loss, a, b, points=3, path="unit-norm-independent")
    assert set(found.curve) == {"train loss", "train error", "test loss", "test error"}
    np.testing.assert_allclose(found.curve["test loss"][-1], loss(b)["test loss"], rtol=1e-4)
    fewer = barrier(loss, a, b, points=3, num_samples=1)
    assert fewer.curve["test loss"][0] != found.curve["test loss"][0]


def test_the_best_temperature_is_that_of_scipy():
    rng = np.random.default_rng(0)
    logits, labels = jnp.asarray(3 * rng.normal(size=(200, 3)), "f"), rng.integers(0, 3, 200)
    labels[:100] = np.argmax(logits[:100], axis=-1)
    known = jnp.asarray(labels)
    best = minimize_scalar(
        lambda t: float(nll(logits / jnp.exp(t), known)), bounds=(-3, 3), method="bounded"
    )
    np.testing.assert_allclose(best_temperature(logits, known), np.exp(best.x), rtol=1e-2)


def test_calibration_is_reported_beside_the_raw_curve():
    x, y = classes(40)
    sure = {"w": 30 * weights(0)["w"]}
    loss = losses(linear, (x, y), (x, y))
    raw = barrier(loss, sure, weights(1), points=3)
    found = barrier(loss, sure, weights(1), points=3, calibrate=True)
    np.testing.assert_allclose(found.curve["test loss"], raw.curve["test loss"], rtol=1e-5)
    assert raw.calibrated is None
    assert found.calibrated is not None
    assert found.temperature is not None
    assert found.temperature.shape == (3,)
    assert np.all(found.calibrated.curve["train loss"] <= raw.curve["train loss"] + 1e-4)
    assert float(found.temperature[0]) > 5
    assert "test loss calibrated" in str(found)


def test_where_all_training_examples_are_right_nothing_is_calibrated():
    """The best temperature would be the coldest, and lift the ends above all that is between."""
    x = jnp.asarray([[1.0, 0.0], [-1.0, 0.0]])
    labels = jnp.asarray([0, 1])
    right = {"w": jnp.asarray([[4.0, -4.0], [0.0, 0.0]])}
    loss = losses(linear, (x, labels), (x, labels[::-1]))
    found = barrier(loss, right, {"w": -right["w"]}, points=3, calibrate=True)
    assert found.temperature is not None
    assert found.calibrated is not None
    assert float(found.temperature[0]) == 1
    assert float(found.calibrated.curve["test loss"][0]) == float(found.curve["test loss"][0])


def test_one_compilation_serves_all_points_and_calls():
    traced = []

    def loss(w):
        traced.append(1)
        return well(w)

    for shift in (0.0, 1.0):
        barrier(loss, jnp.ones(1) + shift, -jnp.ones(1), points=4)
    assert len(traced) == 1


def test_one_compilation_of_the_loss_serves_all_paths():
    traced = []

    def loss(w):
        traced.append(1)
        return well(w)

    a, b = Gaussian(jnp.ones(2), 0.1), Gaussian(jnp.full(2, -2.0), 0.3)
    bent = bend(well, a, b, jax.random.key(0), steps=2)
    half_way = [
        float(barrier(loss, a, b, 5, path, num_samples=3).curve[2])
        for path in ("geodesic", "independent", "unit-norm", "unit-norm-independent", bent)
    ]
    assert len(traced) == 1
    assert len(set(half_way)) == len(half_way)


def test_barrier_can_itself_be_compiled():
    height = jax.jit(lambda a, b: barrier(well, a, b).height)(jnp.ones(1), -jnp.ones(1))
    assert height == 1


X, Y = classes()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: barrier(well, jnp.ones(1), jnp.ones(1), points=1), "points=1"),
        (lambda: barrier(lambda w: w, jnp.ones(2), jnp.ones(2)), r"array of shape \(2,\)"),
        (lambda: barrier(well, jnp.ones(1), jnp.ones(1), calibrate=True), "needs logits"),
        (lambda: barrier(well, jnp.ones(1), jnp.ones(1), num_samples=0), "num_samples=0"),
        (lambda: losses(linear, X), "expected a pair"),
        (lambda: losses(linear, (X, Y * 1.0)), "type float32, expected integer classes"),
        (lambda: losses(linear, (X, Y[:3])), r"labels of shape \(3,\)"),
        (lambda: losses(linear, (X, Y), num_samples=0), "num_samples=0"),
        (lambda: losses(linear, (X, Y), batch_size=0), "batches of 0"),
        (lambda: losses(linear, (jnp.ones((0, 2)), Y[:0])), "got 0 examples"),
        (lambda: losses(linear, ((X, X[:2]), Y)), "expected one number of examples"),
        (lambda: losses(linear, (X.tolist(), Y)), r"pass np.asarray\(inputs\)"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_an_end_that_is_not_a_number_is_named():
    good, bad = {"w": jnp.ones(2)}, {"w": jnp.array([1.0, jnp.nan])}
    with pytest.raises(ValueError, match=r"b holds 1 NaN or infinite values in 'w'"):
        barrier(lambda p: jnp.sum(p["w"]), good, bad)
    endless = {"w": jnp.array([1.0, jnp.inf])}
    with pytest.raises(ValueError, match=r"the std of a holds 1 NaN"):
        barrier(lambda p: jnp.sum(p["w"]), Gaussian(good, endless), Gaussian(good, good))


def test_labels_that_no_output_has_are_named():
    inputs, labels = jnp.ones((3, 2)), jnp.array([0, 1, 5])
    loss = losses(lambda w, x: x @ w, (inputs, labels))
    with pytest.raises(ValueError, match="labels run up to 5, and the network has 4 outputs"):
        barrier(loss, jnp.ones((2, 4)), jnp.zeros((2, 4)))
    with pytest.raises(ValueError, match="train has a label -1"):
        losses(lambda w, x: x @ w, (inputs, labels - 1))

    @jax.jit
    def traced(labels):
        return losses(lambda w, x: x @ w, (inputs, labels))(jnp.ones((2, 6)))["train loss"]

    assert traced(labels) == pytest.approx(np.log(6))
