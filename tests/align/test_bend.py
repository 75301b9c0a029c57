from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from onebasin.align.barrier import barrier
from onebasin.align.bend import Bend, bend
from onebasin.align.paths import interpolate
from onebasin.align.predictive import losses
from onebasin.posterior import Gaussian


def ring(w):
    return (jnp.sum(w**2) - 1) ** 2


A, B = jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])


def test_the_curve_is_quadratic():
    a, c, b = (jnp.asarray(v) for v in np.random.default_rng(0).normal(size=(3, 4)))
    t = 0.3
    found = Bend(a, c, b, jnp.zeros(1)).point(t)
    np.testing.assert_allclose(found, (1 - t) ** 2 * a + 2 * t * (1 - t) * c + t**2 * b, rtol=1e-5)


def test_the_middle_goes_round_the_barrier():
    found = bend(ring, A, B, jax.random.key(0), steps=300, learning_rate=0.02)
    assert barrier(ring, A, B).height > 0.2
    assert barrier(ring, A, B, path=found).height < 0.01
    np.testing.assert_array_equal(found.point(0.0), A)
    np.testing.assert_allclose(found.point(0.5), interpolate(A, B, 0.5, found))
    assert found.history.shape == (300,)


def test_an_untrained_bend_is_the_straight_line():
    found = bend(ring, A, B, jax.random.key(0), steps=3, optimizer=optax.sgd(0.0))
    np.testing.assert_allclose(found.point(0.3), interpolate(A, B, 0.3), rtol=1e-6)


def test_gaussians_bend_their_means_and_couple_noise_independently():
    a, b = Gaussian(A, 0.1), Gaussian(B, 0.2)
    found = bend(ring, a, b, jax.random.key(0), steps=300, learning_rate=0.02)
    half = found.point(0.5)
    np.testing.assert_allclose(half.std, interpolate(a, b, 0.5, "independent").std)
    assert jnp.linalg.norm(half.mean) > 0.9
    straight, bent = (
        barrier(ring, a, b, path=path, num_samples=64).height for path in ("independent", found)
    )
    assert bent < 0.2 * straight


def test_batches_come_from_data_or_from_a_function():
    """Fitted on batches of draws around r = 2, the curve passes at that radius."""

    def loss(params, batch):
        return jnp.mean((jnp.sum(params["w"] ** 2) - batch["r"] ** 2) ** 2)

    radii = 2 + 0.01 * np.random.default_rng(0).normal(size=50).astype("f")
    ends = {"w": 2 * A, "n": 1}, {"w": 2 * B, "n": 2}
    options: Any = {"steps": 400, "learning_rate": 0.03}
    by_data = bend(loss, *ends, jax.random.key(0), {"r": radii}, batch_size=8, **options)

    def batch_fn(key):
        return {"r": 2 + 0.01 * jax.random.normal(key, (8,))}

    by_function = bend(loss, *ends, jax.random.key(0), batch_fn=batch_fn, **options)
    for found in (by_data, by_function):
        half = found.point(0.5)
        assert abs(float(jnp.linalg.norm(half["w"])) - 2) < 0.15
        assert half["n"] == 1


def test_as_text_it_is_short():
    history = jnp.array([3.0, *[2.0] * 18, 1.0])
    found = Bend(A, A, B, history)
    assert repr(found) == "Bend(2 weights, 20 steps, training loss 2.5 -> 1.5)"
    assert str(found) == (
        "a curve between two networks of 2 weights, trained for 20 steps: training loss 2.5 -> 1.5"
    )
    assert "two Gaussians of" in str(Bend(Gaussian(A, 0.1), A, Gaussian(B, 0.1), history))
    jax.jit(lambda bend: repr(bend) and str(bend) and bend.middle)(found)


def test_a_dictionary_goes_by_its_training_loss():
    def both(w):
        return {"test loss": -ring(w), "train loss": ring(w)}

    plain, named = (bend(f, A, B, jax.random.key(0), steps=20) for f in (ring, both))
    np.testing.assert_array_equal(plain.middle, named.middle)
    with pytest.raises(ValueError, match="expected a scalar, or a dictionary with 'train loss'"):
        bend(lambda w: {"test loss": ring(w)}, A, B, jax.random.key(0))
    with pytest.raises(ValueError, match=r"shape \(2,\), expected a scalar"):
        bend(lambda w: w, A, B, jax.random.key(0))


def test_losses_bring_their_data():
    data = jnp.eye(2), jnp.array([0, 1])
    loss = losses(lambda w, x: x * w, data)
    found = bend(loss, A, B, jax.random.key(0), steps=5)
    assert found.history.shape == (5,)
    with pytest.raises(ValueError, match="has its data: leave out data and batch_fn"):
        bend(loss, A, B, jax.random.key(0), data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps=0"),
        ({"data": jnp.ones(3), "batch_fn": lambda key: key}, "got data and batch_fn"),
        ({"data": (jnp.ones(3), jnp.ones(2))}, "expected one number of examples"),
        ({"data": jnp.ones(0)}, "expected one number of examples"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        bend(ring, A, B, jax.random.key(0), **options)
