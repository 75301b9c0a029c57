import jax
import jax.numpy as jnp
import numpy as np
import pytest

from onebasin.align.plane import plane
from onebasin.align.predictive import losses
from onebasin.posterior import Gaussian


def networks(count=3):
    rng = np.random.default_rng(0)
    return [
        {"w": jnp.asarray(rng.normal(size=(2, 3)), "f"), "n": jnp.asarray(number)}
        for number in range(count)
    ]


def square(params):
    return jnp.sum(params["w"] ** 2)


def test_the_corners_are_where_the_networks_are():
    a, b, c = networks()
    found = plane(square, a, b, c, resolution=3)
    for corner, network in zip(found.corners, (a, b, c), strict=True):
        np.testing.assert_allclose(found.point(*corner)["w"], network["w"], atol=1e-5)
    assert found.point(1.0, 1.0)["n"] == 0
    between = [np.linalg.norm(a["w"] - b["w"]), np.linalg.norm(a["w"] - c["w"])]
    np.testing.assert_allclose(np.linalg.norm(found.corners[1:], axis=1), between, rtol=1e-5)
    u, v = (basis["w"] for basis in found.basis)
    gram = [jnp.sum(u * u), jnp.sum(u * v), jnp.sum(v * v)]
    np.testing.assert_allclose(gram, [1, 0, 1], atol=1e-6)


def test_every_value_is_the_loss_at_its_place():
    a, b, c = networks()
    found = plane(lambda p: {"square": square(p)}, a, b, c, resolution=(4, 3), margin=0.5)
    values = found.values["square"]
    assert (found.x.shape, found.y.shape, values.shape) == ((4,), (3,), (3, 4))
    for row in range(3):
        for column in range(4):
            at = found.point(found.x[column], found.y[row])
            np.testing.assert_allclose(values[row, column], square(at), rtol=1e-5)
    low, high = found.corners[:, 0].min(), found.corners[:, 0].max()
    np.testing.assert_allclose(found.x[0], low - 0.5 * (high - low), rtol=1e-5)


def test_losses_on_data_fill_a_plane():
    a, b, c = networks()
    loss = losses(lambda p, x: x @ p["w"], (jnp.ones((4, 2)), jnp.array([0, 1, 2, 0])))
    found = plane(loss, a, b, c, resolution=2)
    assert {name: v.shape for name, v in found.values.items()} == {
        "train loss": (2, 2),
        "train error": (2, 2),
    }


def test_as_text_it_is_short():
    a, b, c = networks()
    found = plane(lambda p: {"one": square(p), "two": 2 * square(p)}, a, b, c, resolution=(4, 3))
    low, high = (f"{float(f(found.values['one'])):.4g}" for f in (jnp.min, jnp.max))
    assert repr(found).startswith(f"Plane(4 x 3 points, one {low} to {high}, two ")
    title, _, one, _ = str(found).splitlines()
    assert title.startswith("4 x 3 points")
    assert one.split() == ["one", low, high]
    jax.jit(lambda plane: repr(plane) and str(plane) and plane.x)(found)


def test_bad_input_is_named():
    a, b, c = networks()
    with pytest.raises(ValueError, match="lie on one line"):
        plane(square, a, b, jax.tree.map(lambda x, y: x + 2 * (y - x), a, b))
    with pytest.raises(ValueError, match="lie on one line"):
        plane(square, a, a, b)
    with pytest.raises(ValueError, match="resolution=1"):
        plane(square, a, b, c, resolution=1)
    with pytest.raises(ValueError, match="c has no leaf 'n'"):
        plane(square, a, b, {"w": c["w"]})
    with pytest.raises(TypeError, match="b is a Gaussian, expected parameters"):
        plane(square, jnp.ones(2), Gaussian(jnp.ones(2), 1.0), jnp.ones(2))
