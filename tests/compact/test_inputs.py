"""Inputs beyond the training set, and what distilling makes of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob
from onebasin.compact import distil, mixtures, shifts, together

IMAGES = np.arange(2 * 4 * 5 * 3, dtype=np.float32).reshape(2, 4, 5, 3)


def moved(image: np.ndarray, down: int, right: int) -> np.ndarray:
    """By NumPy: pad with the border, then cut."""
    padded = np.pad(image, ((1, 1), (1, 1), (0, 0)), mode="edge")
    return padded[1 + down : 5 + down, 1 + right : 6 + right]


def test_shifted_images_are_moved_by_a_pixel_at_most() -> None:
    found = np.asarray(shifts(jax.random.key(0), jnp.asarray(IMAGES), (4, 5, 3), copies=20))
    assert found.shape == (40, 4, 5, 3)
    seen = set()
    for number, image in enumerate(found):
        ways = [
            (i, j)
            for i in (-1, 0, 1)
            for j in (-1, 0, 1)
            if np.array_equal(image, moved(IMAGES[number % 2], i, j))
        ]
        assert len(ways) == 1
        seen.add(ways[0])
    assert len(seen) == 9


@pytest.mark.parametrize("pixels", [0, 2, 3])
def test_images_are_moved_by_as_many_pixels_as_are_asked_for(pixels: int) -> None:
    ramp = np.tile(np.arange(20.0, dtype=np.float32), (1, 20, 1))
    key = jax.random.key(0)
    found = np.asarray(shifts(key, jnp.asarray(ramp), (20, 20), pixels=pixels, copies=200))
    middle = found[:, 10, 10] - 10
    assert set(middle.tolist()) == set(range(-pixels, pixels + 1))


def test_flat_images_are_moved_as_images_are() -> None:
    flat = shifts(jax.random.key(1), jnp.asarray(IMAGES.reshape(2, -1)), (4, 5, 3))
    whole = shifts(jax.random.key(1), jnp.asarray(IMAGES), (4, 5, 3))
    np.testing.assert_array_equal(flat, whole.reshape(2, -1))


def test_several_kinds_come_one_after_the_other() -> None:
    x = jnp.asarray(IMAGES.reshape(2, -1))
    extra = together(mixtures, lambda key, x: 2 * x)
    found = extra(jax.random.key(0), x)
    assert found.shape == (4, 60)
    np.testing.assert_array_equal(found[2:], 2 * x)


def test_a_network_that_only_knows_the_training_inputs_does_not_win() -> None:
    """It is right on all of them, held out or not; beside them it is wrong."""
    x = jnp.concatenate([jnp.full((20, 1), -1.0), jnp.full((20, 1), 1.0)])

    def apply(w: jax.Array, x: jax.Array) -> jax.Array:
        # The second weight counts between the training inputs only.
        return jnp.concatenate([w[0] * x, w[1] * (1 - x**2)], axis=1)

    draws = ob.Draws(jnp.tile(jnp.array([[3.0, 4.0]]), (4, 1)))
    knows, learns = jnp.array([3.0, -4.0]), jnp.array([2.5, 3.5])
    starts = {"knows": ob.Gaussian(knows, 1e-3), "learns": ob.Gaussian(learns, 1e-3)}
    options = {"steps": 1, "num_samples": 2, "batch_size": 8, "learning_rate": 1e-6}
    assert distil(apply, draws, x, starts, **options).start.startswith("learns")
    alone = distil(apply, draws, x, starts, extra=None, **options)
    assert alone.start.startswith("knows")


def test_images_of_bytes_are_mixed() -> None:
    images = jax.random.randint(jax.random.key(0), (40, 5), 0, 256).astype(jnp.uint8)
    found = mixtures(jax.random.key(1), images)
    assert found.dtype == jnp.uint8
    known = {tuple(row) for row in np.asarray(images).tolist()}
    assert sum(tuple(row) in known for row in np.asarray(found).tolist()) < 10


def test_the_low_rank_part_has_batches_of_its_own() -> None:
    """As many inputs per step as were asked for: another number is another fit."""
    x = jax.random.normal(jax.random.key(0), (40, 3))
    draws = ob.Draws(1 + 0.5 * jax.random.normal(jax.random.key(1), (30, 3, 2)))
    starts = {"mean": ob.Gaussian(draws.mean(), 0.1)}
    options = {"steps": 1, "num_samples": 2, "rank": 2, "rank_steps": 20, "rank_samples": 8}
    found = [
        distil(lambda w, x: x @ w, draws, x, starts, rank_batch_size=size, **options)
        for size in (2, 2, 30)
    ]
    scores = [f.scores["mean, rank 2"] for f in found]
    assert scores[0] == scores[1] != scores[2]
