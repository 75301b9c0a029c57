"""The oracles on networks whose groups a person can count, and the zoo against the oracles."""

from collections import Counter
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from onebasin import nets

from . import CASES, activations, mlp, recurrent, traps
from .case import THOROUGH, Case, Model, drawn, linen, normal, plain
from .oracles import scaling_dimension_bound, sign_flips_bruteforce

Array = jax.Array
Params = dict[str, Array]
LARGER = {"mlp-mixer", "ensemble", "ensemble-mean", "experts-argmax", "experts-top-k"}
SMALL = [
    case
    for case in (*mlp.CASES, *activations.CASES, *traps.CASES)
    if case.smooth and case.name not in LARGER and not case.name.endswith("-nobias")
]


def units(between: Callable[[Array], Array], outgoing: int = 2) -> Model:
    """Two hidden units: 1 -> 2 -> `between` -> 1."""

    def apply(params: Params, x: Array) -> Array:
        return between(x @ params["w"] + params["b"]) @ params["v"]

    return plain(apply, {"w": (1, 2), "b": (2,), "v": (outgoing, 1)}, normal(0, 7, 1))


def normed(norm: nn.Module, after: Callable[[Array], Array], size: int) -> Model:
    return linen(nn.Sequential([nn.Dense(size), norm, after, nn.Dense(1, False)]), normal(0, 7, 1))


def gated(gate: Callable[[Array], Array]) -> Model:
    def apply(params: Params, x: Array) -> Array:
        value, gates = jnp.split(x @ params["w"] + params["b"], 2, axis=-1)
        return (value * gate(gates)) @ params["v"]

    return plain(apply, {"w": (1, 4), "b": (4,), "v": (2, 1)}, normal(0, 7, 1))


def attention(params: Params, x: Array) -> Array:
    query, key, value = (x @ params[name] for name in "qkv")
    return jax.nn.softmax(query @ key.swapaxes(1, 2)) @ value @ params["out"]


def norm(x: Array, gain: Array, bias: Array) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-3) * gain + bias


def pre_norm(params: Params, x: Array) -> Array:
    x = x @ params["embed"]
    x = x + attention(params, norm(x, params["g1"], params["b1"]))
    x = x + jax.nn.gelu(norm(x, params["g2"], params["b2"]) @ params["up"]) @ params["down"]
    return norm(x, params["g3"], params["b3"]) @ params["head"]


def post_norm(params: Params, x: Array) -> Array:
    x = x @ params["embed"]
    x = norm(x + attention(params, x), params["g1"], params["b1"])
    x = norm(x + jax.nn.gelu(x @ params["up"]) @ params["down"], params["g2"], params["b2"])
    return x @ params["head"]


def tied(params: Params, tokens: Array) -> Array:
    x = params["embed"][tokens]
    x = x + attention(params, norm(x, params["g1"], params["b1"]))
    return norm(x, params["g2"], params["b2"]) @ params["embed"].T


def constant_positions(params: Params, x: Array) -> Array:
    x = x @ params["embed"] + jnp.arange(12.0).reshape(3, 4) ** 0.5
    x = x + attention(params, norm(x, params["g1"], params["b1"]))
    return norm(x, params["g2"], params["b2"]) @ params["head"]


def shapes(*names: str) -> dict[str, tuple[int, ...]]:
    known: dict[str, tuple[int, ...]] = {
        "embed": (5, 4),
        "out": (3, 4),
        "up": (4, 6),
        "down": (6, 4),
        "head": (4, 2),
        **dict.fromkeys("qkv", (4, 3)),
        **{part + index: (4,) for part in "gb" for index in "123"},
    }
    return {name: known[name] for name in names}


def residual(norm: str) -> Model:
    net = nets.resnet((1,), 2, norm, 6, conv_bias=False)
    inputs = normal(0, 1, 4, 5, 1)
    return net.apply, drawn(net.init, inputs), inputs


ATTENTION = ("q", "k", "v", "out")
NORMS = ("g1", "b1", "g2", "b2")
SMALL_CELLS = {
    "lstm": (recurrent.lstm, {"w": (1, 4), "u": (1, 4), "b": (4,), "out": (1, 1)}),
    "gru": (recurrent.gru, {"w": (1, 3), "u": (1, 3), "b": (3,), "c": (3,), "out": (1, 1)}),
}


@pytest.mark.parametrize(
    ("generators", "build"),
    [
        (0, lambda: units(jax.nn.relu)),
        (0, lambda: units(jax.nn.gelu)),
        (0, lambda: units(activations.crelu, 4)),
        (2, lambda: units(jnp.tanh)),
        (2, lambda: units(jnp.sin)),
        (2, lambda: units(jnp.cos)),
        (2, lambda: units(jnp.abs)),
        (2, lambda: units(jnp.square)),
        (2, lambda: units(jnp.sign)),
        (2, lambda: units(lambda h: h)),
        (2, lambda: gated(jax.nn.sigmoid)),
        (2, lambda: gated(jax.nn.relu)),
        (4, lambda: gated(lambda h: h)),
        # Per unit: gain, bias and outgoing weight. All at once: incoming weights and gains.
        (3 + 1, lambda: normed(nn.LayerNorm(), lambda h: h, 3)),
        (1, lambda: normed(nn.LayerNorm(), nn.relu, 3)),
        (1, lambda: normed(nn.LayerNorm(), nn.gelu, 3)),
        (3, lambda: normed(nn.RMSNorm(), nn.relu, 3)),
        (2, lambda: normed(nn.BatchNorm(use_running_average=True), nn.relu, 2)),
        (
            2 + 2,
            lambda: plain(
                attention, {**dict.fromkeys("qkv", (1, 2)), "out": (2, 1)}, normal(0, 2, 3, 1)
            ),
        ),
    ],
)
def test_signs_of_single_weights(generators: int, build: Callable[[], Model]) -> None:
    assert sign_flips_bruteforce(*build()) == 2**generators


@pytest.mark.parametrize(
    ("generators", "build"),
    [
        # Queries and keys, values and output map; each LayerNorm and its reader; the stream.
        (
            2 + 3 + 1,
            lambda: plain(
                pre_norm,
                shapes(
                    "embed", *ATTENTION, "g1", "b1", "g2", "b2", "up", "down", "g3", "b3", "head"
                ),
                normal(0, 2, 3, 5),
            ),
        ),
        (
            2 + 1 + 2,
            lambda: plain(
                post_norm,
                shapes("embed", *ATTENTION, *NORMS, "up", "down", "head"),
                normal(0, 2, 3, 5),
            ),
        ),
        (
            2 + 1 + 1,
            lambda: plain(
                tied,
                shapes("embed", *ATTENTION, *NORMS),
                jnp.array([[0, 3, 1], [2, 4, 4]]),
            ),
        ),
        (
            2 + 2,
            lambda: plain(
                constant_positions,
                shapes("embed", *ATTENTION, *NORMS, "head"),
                normal(0, 2, 3, 5),
            ),
        ),
        *((3, lambda name=name: residual(name)) for name in ("frn", "layer", "group", "batch")),
    ],
)
def test_signs_of_whole_arrays(generators: int, build: Callable[[], Model]) -> None:
    assert sign_flips_bruteforce(*build(), by_leaf=True) == 2**generators


@pytest.mark.parametrize("name", SMALL_CELLS)
def test_a_recurrent_unit_flips(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent, "zeros", lambda xs: jnp.zeros((xs.shape[0], 1), xs.dtype))
    assert sign_flips_bruteforce(*plain(*SMALL_CELLS[name], normal(0, 2, 4, 1))) == 2


def test_too_many_signs() -> None:
    with pytest.raises(ValueError, match="at most 18"):
        sign_flips_bruteforce(*mlp.net("relu", bias=True))


SOME = SMALL if THOROUGH else SMALL[::4]


@pytest.mark.parametrize("case", SOME, ids=[case.name for case in SOME])
def test_scaling_dimension(case: Case) -> None:
    bound = scaling_dimension_bound(*case.build(), jax.random.key(5))
    assert bound == case.scaling_dimension


def test_names_are_unique() -> None:
    assert max(Counter(case.name for case in CASES).values()) == 1


def test_kinds_make_sense() -> None:
    for case in CASES:
        for size, copies, kinds in case.factors or ():
            assert kinds, case.name
            assert min(size, copies) >= 1
            assert size > 1 or "permutation" not in kinds, case.name
        scales = any("scaling" in kinds for _, _, kinds in case.factors or ())
        assert case.factors is None or scales == bool(case.scaling_dimension), case.name
