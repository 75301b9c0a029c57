"""Primitives at their edges: what each lets through, and what a rule is tempted to claim."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from zoo.case import Factor, Model, factor, normal, plain

import onebasin as ob

from .models import units

Array = jax.Array
Params = dict[str, Array]
Rule = tuple[Callable[[], Model], tuple[Factor, ...]]
relu = jax.nn.relu

P, PS, PF, PSF = (factor(4, kinds) for kinds in ("p", "ps", "pf", "psf"))


def between(function: Callable[[Array], Array], *expected: Factor, outgoing: int = 4) -> Rule:
    """Four hidden units, a function of them, and a last layer that reads `outgoing` values."""
    return lambda: units(function, {"w": (3, 4), "b": (4,), "v": (outgoing, 2)}), expected


def weights(
    function: Callable[[Params, Array], Array], shapes: dict[str, tuple], *expected: Factor
) -> Rule:
    return lambda: plain(function, shapes, normal(0, 5, 3)), expected


def two_readers(params: Params, first: Array, second: Array) -> Array:
    return relu(first) @ params["c"] + jnp.tanh(second) @ params["d"]


def every_other_row(params: Params, x: Array) -> Array:
    rows = params["a"][::2]
    return two_readers(params, x[:, :1] * rows[0], x[:, :1] * rows[1])


def every_other_column(params: Params, x: Array) -> Array:
    columns = params["a"][:, ::2]
    return two_readers(params, x[:, :1] * columns[:, 0], x[:, :1] * columns[:, 1])


def every_other_part(params: Params, x: Array) -> Array:
    parts = (x @ params["a"]).reshape(-1, 3, 4)[:, ::2]
    return two_readers(params, parts[:, 0], parts[:, 1])


def flattened_mask(params: Params, x: Array) -> Array:
    """One number per example, repeated for all units; both in one axis, as PyTorch has it."""
    mask = jnp.broadcast_to(x[:, :1], (5, 4)).reshape(-1)
    return (relu(x @ params["a"]).reshape(-1) * mask).reshape(5, 4) @ params["v"]


def flattened_places(params: Params, x: Array) -> Array:
    """The other way round: repeated for all examples, and telling units apart."""
    mask = jnp.broadcast_to(x.reshape(-1)[:4], (5, 4)).reshape(-1)
    return jnp.tanh((x @ params["a"]).reshape(-1) * mask).reshape(5, 4) @ params["v"]


def spectral(params: Params, x: Array) -> Array:
    """A filter per channel along the first axis, as Fourier layers have it."""
    waves = jnp.fft.rfft(x @ params["e"], axis=0) * params["w"]
    return relu(jnp.fft.irfft(waves, n=5, axis=0)) @ params["o"]


def spectrum(params: Params, x: Array) -> Array:
    """Real and imaginary parts, apart and together again: linear all the way."""
    waves = jnp.fft.fft(x @ params["e"], axis=0)
    waves = lax.complex(waves.real, 2 * jnp.conj(waves).imag)
    return jnp.fft.ifft(waves, axis=0).real @ params["o"]


def in_groups(groups: int) -> Callable[[Params, Array], Array]:
    """Channels of two layers laid end to end, normalised in groups."""

    def apply(params: Params, x: Array) -> Array:
        both = jnp.concatenate([relu(x @ params["a"]), jnp.tanh(x @ params["c"])], axis=-1)
        parts = both.reshape(len(x), groups, -1)
        parts = parts - parts.mean(axis=-1, keepdims=True)
        parts = parts / jnp.sqrt(jnp.mean(parts**2, axis=-1, keepdims=True) + 1e-3)
        return jax.nn.gelu(parts.reshape(both.shape) * params["g"]) @ params["v"]

    return apply


def channels(first: int, second: int) -> dict[str, tuple]:
    both = first + second
    return {"a": (3, first), "c": (3, second), "g": (both,), "v": (both, 2)}


def shuffled(x: Array, groups: int = 2) -> Array:
    """Channels in another order, as between grouped convolutions."""
    return x.reshape(len(x), groups, -1).swapaxes(1, 2).reshape(x.shape)


def shuffled_and_not(params: Params, x: Array) -> Array:
    h = relu(x @ params["a"])
    return (h + shuffled(h)) @ params["v"]


def shuffled_in_groups(params: Params, x: Array) -> Array:
    """What is read group by group knows its groups."""
    h = shuffled(relu(x @ params["a"])).reshape(-1, 2, 3)
    return jnp.einsum("bgi,gio->bo", jnp.tanh(h), params["v"])


def grouped_rows(sizes: Any) -> Callable[[Params, Array], Array]:
    """Two experts, each with units of its own, for the first rows and for the next ones."""

    def apply(params: Params, x: Array) -> Array:
        hidden = relu(lax.ragged_dot(x, params["w"], sizes))
        return lax.ragged_dot(hidden, params["v"], sizes)

    return apply


def grouped_rows_of_two_sizes(params: Params, x: Array) -> Array:
    """The same groups for five rows and for two, which have nothing to do with one another."""
    sizes = jnp.array([1, 1])
    first, second = (
        lax.ragged_dot(relu(lax.ragged_dot(rows, params["w"], sizes)), params["v"], sizes)
        for rows in (x, x[:2])
    )
    return jnp.concatenate([first, second])


def grouped_rows_read_at_once(params: Params, x: Array) -> Array:
    """One reader for all rows: units of one place are tied."""
    return jnp.cos(lax.ragged_dot(x, params["w"], jnp.array([2, 2]))) @ params["v"]


def recurrence(params: Params, x: Array) -> Array:
    """A diagonal linear state from complex zeros, as in LRU and S5."""
    turn = jnp.exp(-jnp.exp(params["nu"]) + 1j * params["theta"])
    weights = params["re"] + 1j * params["im"]

    def step(state: Array, u: Array) -> tuple[Array, Array]:
        state = turn * state + u @ weights
        return state, (state @ (params["out"] + 0j)).real

    return lax.scan(step, jnp.zeros(4, jnp.complex64), x)[1]


def recurrence_at_once(params: Params, x: Array) -> Array:
    """The same by an associative scan, which lays zeros beside states."""
    turn = jnp.exp(-jnp.exp(params["nu"]) + 1j * params["theta"])
    driven = x @ (params["re"] + 1j * params["im"])

    def join(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        return a[0] * b[0], b[0] * a[1] + b[1]

    turns = jnp.broadcast_to(turn, driven.shape)
    return (lax.associative_scan(join, (turns, driven))[1] @ (params["out"] + 0j)).real


RECURRENCE = {"nu": (4,), "theta": (4,), "re": (3, 4), "im": (3, 4), "out": (4, 2)}
GROUPED = {"w": (2, 3, 4), "v": (2, 4, 2)}
PAIR = {"a": (3, 4), "c": (3, 4), "v": (4, 2)}
READERS = {"c": (4, 2), "d": (4, 2)}
RULES: dict[str, Rule] = {
    # What is one, or constant, is no zero: nothing can be absorbed in it.
    "power zero": between(lambda h: jnp.abs(h) ** 0.0 + relu(h), P),
    "zeros to the power zero": between(lambda h: lax.integer_pow(0 * h, 0) + relu(h), P),
    "constant zeros to the power zero": between(
        lambda h: lax.integer_pow(jnp.zeros_like(h), 0) + relu(h), P
    ),
    "zero to the power of zeros": between(
        lambda h: lax.pow(jnp.zeros_like(h), jnp.zeros_like(h)) + relu(h), P
    ),
    "product of nothing": between(lambda h: jnp.prod(jnp.zeros((0, 4)), axis=0) + relu(h), P),
    "imaginary constant": between(lambda h: jnp.abs(relu(h) + 1j), P),
    "gather beyond the end": between(
        lambda h: jnp.take(relu(h), jnp.array([0, 9]), axis=0, mode="fill", fill_value=1.0), P
    ),
    "gather beyond the end, zeros": between(
        lambda h: jnp.take(relu(h), jnp.array([0, 9]), axis=0, mode="fill", fill_value=0.0), PS
    ),
    # Exponents that are no small fractions.
    "power infinity": between(lambda h: jnp.tanh(relu(h)) ** jnp.inf + relu(h), P),
    "power nan": between(lambda h: jnp.where(h > jnp.inf, relu(h) ** jnp.nan, relu(h)), P),
    "power a half": between(lambda h: jnp.abs(h) ** 0.5, PSF),
    "power a third": between(lambda h: jnp.abs(h) ** (1 / 3), PSF),
    # Products over units forget scales and signs of none.
    "product over four": weights(
        lambda params, x: jnp.prod(x @ params["w"], axis=-1) * params["c"],
        {"w": (3, 4), "c": ()},
        P,
        factor(1, "s"),
        factor(1, "f"),
    ),
    "product over three": weights(
        lambda params, x: jnp.prod(x @ params["w"], axis=-1) * params["c"],
        {"w": (3, 3), "c": ()},
        factor(3, "p"),
        factor(1, "sf"),
    ),
    # NaN fits any scale, as zero does: jnp.var and jnp.std choose between a variance and NaN.
    "standardised weights": weights(
        lambda params, x: x @ (params["w"] / params["w"].std(axis=0)) @ params["v"],
        {"w": (3, 4), "v": (4, 2)},
        PSF,
    ),
    "variance": weights(
        lambda params, x: jnp.var(x @ params["w"], axis=0) @ params["v"],
        {"w": (3, 4), "v": (4, 2)},
        PSF,
    ),
    # Strides pick entries; what they leave behind is not read.
    "every other row": weights(every_other_row, {"a": (3, 4), **READERS}, PS, PF),
    "every other column": weights(every_other_column, {"a": (4, 3), **READERS}, PS, PF),
    "every other part": weights(every_other_part, {"a": (3, 12), **READERS}, PS, PF),
    "rows by stride, columns contracted": weights(
        lambda params, x: params["a"][::2] @ params["c"] + x.sum(),
        {"a": (3, 4), "c": (4, 2)},
        PSF,
    ),
    "stride beyond the end": between(lambda h: h[:, 1::7], factor(1, "sf"), outgoing=1),
    # An axis whose entries lead separate lives, beside another one of the same length.
    "columns swapped": weights(
        lambda params, x: jnp.roll(params["a"] @ params["c"], 1, axis=1),
        {"a": (2, 2), "c": (2, 2)},
        factor(2, "psf"),
    ),
    "columns swapped, then read": weights(
        lambda params, x: jnp.roll(jnp.einsum("ijk,kl->lij", params["a"], params["c"]), 1, axis=0)
        @ params["v"],
        {"a": (2, 4, 2), "c": (2, 2), "v": (4, 2)},
        factor(2, "psf"),
        PSF,
    ),
    "stacked": weights(
        lambda params, x: relu(jnp.stack([x @ params["a"], x @ params["c"]])).sum(0) @ params["v"],
        {"a": (3, 4), "c": (3, 4), "v": (4, 2)},
        PS,
    ),
    "unstacked": weights(
        lambda params, x: two_readers(
            params, *jnp.unstack((x @ params["a"]).reshape(-1, 2, 4), axis=1)
        ),
        {"a": (3, 8), **READERS},
        PS,
        PF,
    ),
    "mask repeated and flattened": weights(flattened_mask, {"a": (3, 4), "v": (4, 2)}, PS),
    "places repeated and flattened": weights(
        flattened_places, {"a": (3, 4), "v": (4, 2)}, factor(4, "f")
    ),
    # Comparisons and choices.
    "where positive": between(lambda h: jnp.where(h > 0, h, 0.3 * h), PS),
    "where above one": between(lambda h: jnp.where(h > 1, h, 0.3 * h), P),
    "equal to zero": between(lambda h: jnp.where(h == 0, 1.0, 0.0) + h, P),
    "clip from zero": between(lambda h: jnp.clip(h, 0, jnp.inf), PS),
    "clip to one": between(lambda h: jnp.clip(h, 0, 1), P),
    # Clamped alike on both sides: odd, however it is written.
    "clip to either side": between(lambda h: jnp.clip(h, -0.3, 0.3), PF),
    "clamp": between(lambda h: lax.clamp(-0.3, h, 0.3), PF),
    "clamp to an array": between(lambda h: lax.clamp(-jnp.ones((5, 4)), h, jnp.ones((5, 4))), PF),
    "smaller, then larger": between(lambda h: jnp.maximum(0.3, jnp.minimum(h, 0.3) - 0.6), P),
    "least of largest": between(lambda h: jnp.maximum(jnp.minimum(h, 0.3), -0.3), PF),
    "choice of choices": between(
        lambda h: jnp.where(h < -0.3, -0.3, jnp.where(h >= 0.3, 0.3, h)), PF
    ),
    "clip, and what lies between": between(
        lambda h: jnp.clip(h, -0.3, 0.3) * jnp.maximum(h, -0.3), P
    ),
    "clip further on one side": between(lambda h: jnp.clip(h, -0.3, 0.4), P),
    "clip to another number": between(
        lambda h: jnp.where(h > 0.3, 0.3, jnp.where(h < -0.3, -0.4, h)), P
    ),
    "clip at another number": between(
        lambda h: jnp.where(h > 0.3, 0.3, jnp.where(h < -0.4, -0.3, h)), P
    ),
    "clip of another": between(
        lambda h: jnp.where(h > 0.3, 0.3, jnp.where(h - 0.1 < -0.3, -0.3, h)), P
    ),
    "clip the wrong way round": between(lambda h: jnp.clip(h, 0.3, -0.3) + h, P),
    # Odd in what comes first; the second one may flip in a remainder, and not in an angle.
    "angle": between(lambda h: jnp.arctan2(h, 2.0), PF),
    "angle between units": weights(
        lambda params, x: jnp.arctan2(x @ params["a"], x @ params["c"]) @ params["v"],
        {"a": (3, 4), "c": (3, 4), "v": (4, 2)},
        PSF,
    ),
    "angle on the other side": between(lambda h: jnp.arctan2(1.0, h), P),
    "angle with itself": between(lambda h: jnp.arctan2(h, h), PS),
    "angle of zeros": between(lambda h: jnp.arctan2(0 * relu(h), -1.0) + h, P),
    "angle of no numbers": between(lambda h: jnp.arctan2(jnp.zeros((5, 4)), -1.0) + h, P),
    "remainder": between(lambda h: jnp.fmod(h, 0.7), PF),
    "remainder of one": between(lambda h: jnp.fmod(1.0, h), PF),
    "remainder between units": weights(
        lambda params, x: jnp.fmod(x @ params["a"], x @ params["c"]) @ params["v"],
        {"a": (3, 4), "c": (3, 4), "v": (4, 2)},
        PSF,
    ),
    "remainder from below": between(lambda h: jnp.remainder(h, 0.7), P),
    "nan to number": between(lambda h: jnp.where(jnp.isnan(h), 0.0, relu(h)), PS),
    # The side of zero, and the size, of a number: a scale leaves the one alone, a sign the other.
    "step with a value at zero": between(lambda h: jnp.heaviside(h, 0.5), PS),
    "bit of the sign": between(lambda h: jnp.signbit(h).astype(h.dtype), PS),
    "sign of another": between(lambda h: jnp.copysign(relu(h), h), PS),
    "sign turned": between(lambda h: jnp.copysign(h, -h), PSF),
    "sign between units": weights(
        lambda params, x: jnp.copysign(x @ params["a"], x @ params["c"]) @ params["v"], PAIR, PSF
    ),
    "length of two": weights(
        lambda params, x: jnp.hypot(x @ params["a"], x @ params["c"]) @ params["v"], PAIR, PSF
    ),
    "length with one": between(lambda h: jnp.hypot(h, 1.0), PF),
    "a number where a root is none": between(
        lambda h: jnp.where(jnp.isnan(jnp.sqrt(h)), 1.0, relu(h)), P
    ),
    # Even and odd in words of several primitives.
    "larger of both": between(lambda h: jnp.maximum(h, -h), PSF),
    "smaller of both": between(lambda h: jnp.minimum(-h, h), PSF),
    "larger of one and twice the other": between(lambda h: jnp.maximum(h, -2 * h), PS),
    "smooth larger of both": between(lambda h: jnp.logaddexp(h, -h), PF),
    "smooth larger of one and twice the other": between(lambda h: jnp.logaddexp(h, -2 * h), P),
    "sum of both sides": between(lambda h: relu(h) + relu(-h), PSF),
    "difference of softplus": between(lambda h: jax.nn.softplus(h) - jax.nn.softplus(-h), PF),
    "sum of softplus and twice": between(lambda h: jax.nn.softplus(h) + jax.nn.softplus(-2 * h), P),
    "towards zero": between(jnp.trunc, PF),
    "away from zero": between(lambda h: jnp.where(h > 0, jnp.ceil(h), jnp.floor(h)), PF),
    "fractions": between(lambda h: jnp.modf(3 * h)[0], PF),
    "up on one side only": between(lambda h: jnp.where(h > 0, jnp.floor(h), jnp.ceil(h) + 1), P),
    "odd but for zero": between(lambda h: jnp.where(h > 0, jnp.exp(h), -jnp.exp(-h)), P),
    "even by choice": between(lambda h: jnp.where(h > 0, jnp.exp(h), jnp.exp(-h)), PF),
    "a choice by what is often zero": between(
        lambda h: jnp.where(jnp.trunc(h) < 0, -jnp.exp(h), jnp.exp(-h)), P
    ),
    "sine over its argument": between(jnp.sinc, PF),
    "Bessel, odd": between(jax.scipy.special.i1, PF),
    "Bessel, even": between(jax.scipy.special.i0, PF),
    # Cases that are never used.
    "divided where it can be": between(
        lambda h: jnp.where(h == 0, 0.0, relu(h) / jnp.where(h == 0, 1.0, jnp.abs(h))), PS
    ),
    "divided unless it is one": between(
        lambda h: jnp.where(h == 0, 0.0, relu(h) / jnp.where(h == 1, 2.0, jnp.abs(h))), P
    ),
    "the guard alone": between(lambda h: relu(h) / jnp.where(h == 0, 1.0, jnp.abs(h)), P),
    "safe length": between(
        lambda h: jnp.where(
            (n := jnp.sum(h**2, -1, keepdims=True)) == 0, 0.0, h / jnp.where(n == 0, 1.0, n)
        ),
        PF,
        factor(1, "s"),
    ),
    # Places in a table.
    "place in a table": between(
        lambda h: jnp.searchsorted(jnp.array([-1.0, 0.0, 0.5]), h).astype(h.dtype), P
    ),
    "function by a table": between(
        lambda h: jnp.interp(h, jnp.array([-1.0, 0.0, 0.5]), jnp.array([0.5, 0.0, 2.0])), P
    ),
    # Layers laid end to end, then folded into groups.
    "a group each": weights(
        in_groups(2), channels(6, 6), factor(6, "p"), factor(6, "p"), factor(1, "f")
    ),
    "a group across two layers": weights(
        in_groups(2), channels(8, 4), factor(6, "p"), factor(2, "p"), factor(4, "p")
    ),
    "two groups and one": weights(
        in_groups(3),
        channels(8, 4),
        factor(2, "p"),
        factor(4, "p", copies=2),
        factor(4, "p"),
        factor(1, "f"),
    ),
    # Channels in another order.
    "shuffled": weights(
        lambda params, x: shuffled(relu(x @ params["a"])) @ params["v"],
        {"a": (3, 6), "v": (6, 2)},
        factor(6, "ps"),
    ),
    "shuffled and shuffled again": weights(
        lambda params, x: shuffled(relu(shuffled(x @ params["a"]) + params["b"]), 3) @ params["v"],
        {"a": (3, 6), "b": (6,), "v": (6, 2)},
        factor(6, "ps"),
    ),
    "shuffled and not": weights(shuffled_and_not, {"a": (3, 6), "v": (6, 2)}),
    "shuffled, then in groups": weights(
        shuffled_in_groups,
        {"a": (3, 6), "v": (2, 3, 2)},
        factor(2, "p"),
        factor(3, "p", copies=2),
    ),
    # Rows in groups, each with a matrix of its own.
    "rows in groups": weights(grouped_rows(jnp.array([2, 3])), GROUPED, factor(4, "ps", copies=2)),
    "rows beyond the groups": weights(
        grouped_rows(jnp.array([1, 2])), GROUPED, factor(4, "ps", copies=2)
    ),
    "rows in groups, more and fewer": weights(
        grouped_rows_of_two_sizes, GROUPED, factor(4, "ps", copies=2)
    ),
    "rows in groups, read at once": weights(
        grouped_rows_read_at_once, {"w": (2, 3, 4), "v": (4, 2)}, P, factor(2, "f", copies=4)
    ),
    # States that start from complex zeros.
    "linear recurrence": weights(recurrence, RECURRENCE, PSF),
    "linear recurrence at once": weights(recurrence_at_once, RECURRENCE, PSF),
    # Order, and what forgets it.
    "reverse twice": between(lambda h: relu(h)[:, ::-1][:, ::-1], factor(1, "s")),
    "largest two": between(lambda h: lax.top_k(h, 2)[0], P, factor(1, "s"), outgoing=2),
    "median": between(
        lambda h: relu(h) - jnp.median(h, axis=-1, keepdims=True), P, factor(1, "s")
    ),
    "index of the largest": between(
        lambda h: jax.nn.one_hot(jnp.argmax(h, -1), 4, dtype=h.dtype), P, factor(1, "s")
    ),
    # Fourier transforms mix the axes that they run along, and no others.
    "filter along examples": weights(spectral, {"e": (3, 4), "w": (3, 4), "o": (4, 2)}, PSF),
    "spectrum along examples": weights(spectrum, {"e": (3, 4), "o": (4, 2)}, PSF),
    "spectrum of units": between(
        lambda h: jnp.fft.irfft(jnp.fft.rfft(relu(h)), n=4), factor(1, "s")
    ),
    "spectrum of both": between(lambda h: jnp.fft.fft2(relu(h)).real, factor(1, "s")),
    "lengths of waves": between(lambda h: jnp.abs(jnp.fft.fft(h, axis=0)), PSF),
    "phases of waves": between(lambda h: jnp.angle(jnp.fft.fft(h, axis=0)), PS),
    "waves to the power of e": between(lambda h: jnp.exp(jnp.fft.fft(h, axis=0)).real, P),
    # Copies of units, laid end to end or side by side.
    "tiled": between(lambda h: jnp.tile(relu(h), (1, 3)), PS, outgoing=12),
    "repeated": between(
        lambda h: jnp.repeat(relu(h), 3, axis=-1), PS, factor(3, "p", copies=4), outgoing=12
    ),
    "padded with ones": between(
        lambda h: jnp.pad(relu(h), ((0, 0), (1, 2)), constant_values=1), PS, factor(2, "p"),
        outgoing=7,
    ),
    "ones beside units": between(
        lambda h: jnp.concatenate([relu(h), jnp.ones((5, 1))], axis=-1), PS, outgoing=5
    ),
    "half relu, half tanh": between(
        lambda h: jnp.concatenate([relu(h[:, :2]), jnp.tanh(h[:, 2:])], axis=-1),
        factor(2, "ps"),
        factor(2, "pf"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_rule(name: str) -> None:
    build, expected = RULES[name]
    model = build()
    sym = ob.discover(*model)
    assert Counter((f.size, f.copies, f.kinds) for f in sym.factors) == Counter(expected)
    for seed in range(3):
        ob.check_symmetry(sym, *model, seed=seed, num_elements=6, power=False)
