"""What each augmentation does to images whose pixels are known."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import onebasin as ob


def key():
    return jax.random.key(0)


def numbered(count=64, height=8, width=8):
    """Images whose pixels say where they are: channel 0 the row, channel 1 the column."""
    rows, columns = jnp.meshgrid(jnp.arange(height), jnp.arange(width), indexing="ij")
    image = jnp.stack([rows, columns], -1).astype(jnp.uint8)
    return jnp.broadcast_to(image, (count, height, width, 2))


@pytest.mark.parametrize("mode", ["reflect", "edge", "zeros"])
def test_a_crop_is_a_window_of_the_padded_image(mode):
    padding, images = 3, numbered()
    found = np.asarray(ob.augment.crop_and_flip(padding, mode)(key(), images))
    how = "constant" if mode == "zeros" else mode
    around = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    padded = np.pad(np.asarray(images), around, mode=how)[0]
    windows = {}
    for down in range(2 * padding + 1):
        for across in range(2 * padding + 1):
            window = padded[down : down + 8, across : across + 8]
            windows[window.tobytes()] = (down, across, False)
            windows[window[:, ::-1].tobytes()] = (down, across, True)
    seen = [windows[np.ascontiguousarray(image).tobytes()] for image in found]
    assert {down for down, _, _ in seen} == set(range(2 * padding + 1))
    assert {across for _, across, _ in seen} == set(range(2 * padding + 1))
    assert 16 < sum(flipped for *_, flipped in seen) < 48


def test_without_padding_and_flips_nothing_changes():
    images = numbered(4)
    assert (ob.augment.crop_and_flip(0, flip=False)(key(), images) == images).all()
    flipped = ob.augment.crop_and_flip(0)(key(), numbered(64))
    assert (flipped[..., 0] == numbered(64)[..., 0]).all()


def test_a_cutout_hides_one_square():
    found = np.asarray(ob.augment.cutout(3, fill=99.0)(key(), numbered(64, 16, 16)))
    hidden = (found == 99).all(-1)
    for image in hidden:
        rows, columns = np.flatnonzero(image.any(1)), np.flatnonzero(image.any(0))
        assert 2 <= len(rows) <= 3
        assert 2 <= len(columns) <= 3
        assert image[np.ix_(rows, columns)].all()
    assert len({image.tobytes() for image in hidden}) > 30


def test_composition_is_one_after_the_other_with_keys_of_their_own():
    crop, cut = ob.augment.crop_and_flip(2), ob.augment.cutout(2)
    first, second = jax.random.split(key())
    expected = cut(second, crop(first, numbered()))
    assert (ob.augment.compose(crop, cut)(key(), numbered()) == expected).all()


def test_augmentations_are_values():
    for make in (
        lambda: ob.augment.crop_and_flip(2, "edge"),
        lambda: ob.augment.cutout(3),
        lambda: ob.augment.compose(ob.augment.crop_and_flip(), ob.augment.cutout()),
    ):
        assert make() == make()
        assert hash(make()) == hash(make())
        assert pickle.loads(pickle.dumps(make())) == make()
    assert ob.augment.cutout(3) != ob.augment.cutout(4)


def test_the_same_key_makes_the_same_images_compiled_or_not():
    both = ob.augment.compose(ob.augment.crop_and_flip(), ob.augment.cutout())
    images = jax.random.normal(jax.random.key(1), (8, 16, 16, 3))
    once, again = both(key(), images), jax.jit(both)(key(), images)
    assert (once == again).all()
    assert once.dtype == images.dtype
    assert (both(jax.random.key(2), images) != once).any()


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: ob.augment.crop_and_flip(mode="wrap"), r"mode='wrap'.*'reflect'"),
        (lambda: ob.augment.crop_and_flip(padding=-1), r"padding=-1.*0 or more"),
        (lambda: ob.augment.crop_and_flip(9)(key(), numbered()), r"padding=9.*8 x 8"),
        (
            lambda: ob.augment.crop_and_flip()(key(), jnp.ones((2, 8, 8))),
            r"\(2, 8, 8\).*channel axis",
        ),
        (lambda: ob.augment.cutout(0), r"size=0.*1 or more"),
        (lambda: ob.augment.compose(), r"nothing.*functions"),
        (lambda: ob.augment.compose(3), r"int.*functions"),
    ],
)
def test_bad_input_is_one_sentence(act, message):
    with pytest.raises((ValueError, TypeError), match=message):
        act()
