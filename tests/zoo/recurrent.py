"""Recurrent networks and loops."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from .case import Case, factor, linen, normal, plain

Array = jax.Array
Cell = Callable[[dict[str, Array], Any, Array], Any]


def lstm_cell(params: dict[str, Array], state: tuple[Array, Array], x: Array) -> Any:
    cell, hidden = state
    gates = x @ params["w"] + hidden @ params["u"] + params["b"]
    i, f, g, o = jnp.split(gates, 4, axis=-1)
    cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
    return cell, jax.nn.sigmoid(o) * jnp.tanh(cell)


def gru_cell(params: dict[str, Array], hidden: Array, x: Array) -> Array:
    reset_x, update_x, new_x = jnp.split(x @ params["w"] + params["b"], 3, axis=-1)
    reset_h, update_h, new_h = jnp.split(hidden @ params["u"] + params["c"], 3, axis=-1)
    update = jax.nn.sigmoid(update_x + update_h)
    new = jnp.tanh(new_x + jax.nn.sigmoid(reset_x + reset_h) * new_h)
    return (1 - update) * new + update * hidden


def elman_cell(activation: Callable[[Array], Array]) -> Cell:
    def cell(params: dict[str, Array], hidden: Array, x: Array) -> Array:
        return activation(x @ params["w"] + hidden @ params["u"] + params["b"])

    return cell


def run(cell: Cell, params: dict[str, Array], state: Any, xs: Array) -> tuple[Any, Array]:
    """Scan over time: the last state, and all hidden states (batch, time, hidden)."""

    def step(state: Any, x: Array) -> Any:
        state = cell(params, state, x)
        return state, state[1] if isinstance(state, tuple) else state

    state, hidden = jax.lax.scan(step, state, xs.swapaxes(0, 1))
    return state, hidden.swapaxes(0, 1)


def zeros(xs: Array, size: int = 5) -> Array:
    return jnp.zeros((xs.shape[0], size), xs.dtype)


def lstm(params: dict[str, Array], xs: Array) -> Array:
    (_, hidden), _ = run(lstm_cell, params, (zeros(xs), zeros(xs)), xs)
    return hidden @ params["out"]


def gru(params: dict[str, Array], xs: Array) -> Array:
    return run(gru_cell, params, zeros(xs), xs)[0] @ params["out"]


def elman(activation: Callable[[Array], Array], learned: bool = False) -> Any:
    def apply(params: dict[str, Array], xs: Array) -> Array:
        start = jnp.broadcast_to(params["start"], zeros(xs).shape) if learned else zeros(xs)
        return run(elman_cell(activation), params, start, xs)[1] @ params["out"]

    return apply


def shared_zero_state(params: dict[str, Any], xs: Array) -> Array:
    start = zeros(xs)
    _, hidden = run(elman_cell(jnp.tanh), params["first"], start, xs)
    _, hidden = run(elman_cell(jax.nn.relu), params["second"], start, hidden)
    return hidden @ params["out"]


def two_layers() -> Any:
    first = plain(shared_zero_state, ELMAN, normal(0, 2, 4, 3))[1]
    second = plain(shared_zero_state, {**ELMAN, "w": (5, 5)}, normal(0, 2, 4, 3))[1]
    out = first.pop("out")
    second.pop("out")
    return shared_zero_state, {"first": first, "second": second, "out": out}, normal(0, 2, 4, 3)


def deep_scan(params: dict[str, Array], x: Array) -> Array:
    def layer(x: Array, stacked: tuple[Array, Array]) -> tuple[Array, None]:
        weights, bias = stacked
        return jax.nn.relu(x @ weights + bias), None

    x, _ = jax.lax.scan(layer, x @ params["in"], (params["w"], params["b"]))
    return x @ params["out"]


def residual_scan(params: dict[str, Array], x: Array) -> Array:
    def layer(x: Array, stacked: tuple[Array, Array, Array]) -> tuple[Array, None]:
        w1, b1, w2 = stacked
        return x + jax.nn.relu(x @ w1 + b1) @ w2, None

    x, _ = jax.lax.scan(layer, x @ params["in"], (params["w1"], params["b1"], params["w2"]))
    return x @ params["out"]


def fixed_point(params: dict[str, Array], x: Array) -> Array:
    def step(_: int, hidden: Array) -> Array:
        return jnp.tanh(x @ params["w"] + hidden @ params["u"] + params["b"])

    return jax.lax.fori_loop(0, 3, step, zeros(x)) @ params["out"]


def branches(params: dict[str, Array], x: Array) -> Array:
    hidden = jax.nn.relu(x @ params["w"] + params["b"])
    return jax.lax.cond(
        jnp.sum(x) > 0,
        lambda hidden: hidden @ params["u"],
        lambda hidden: jnp.maximum(hidden, 0.0) @ params["v"],
        hidden,
    )


class Flax(nn.Module):
    cell: nn.RNNCellBase
    start: bool = False

    @nn.compact
    def __call__(self, xs: Array) -> Array:
        hidden: Any = nn.RNN(self.cell)(xs, initial_carry=zeros(xs) if self.start else None)
        return nn.Dense(2)(hidden[:, -1])


LSTM = {"w": (3, 20), "u": (5, 20), "b": (20,), "out": (5, 2)}
GRU = {"w": (3, 15), "u": (5, 15), "b": (15,), "c": (15,), "out": (5, 2)}
ELMAN = {"w": (3, 5), "u": (5, 5), "b": (5,), "out": (5, 2)}
XS = (2, 4, 3)

CASES = (
    # A unit flips: its candidate (tanh) and all that reads its hidden state; its gates do not.
    Case("lstm-scan", lambda: plain(lstm, LSTM, normal(0, *XS)), (factor(5, "pf"),), 0),
    Case("gru-scan", lambda: plain(gru, GRU, normal(0, *XS)), (factor(5, "pf"),), 0),
    *(
        Case(
            name,
            lambda cell=cell: linen(Flax(cell(5)), normal(0, *XS)),  # type: ignore[misc]
            (factor(5, "pf"),),
            0,
            note="nn.RNN starts from float32 zeros, whatever the inputs are.",
            float32_only=True,
        )
        for name, cell in (
            ("lstm-linen", nn.LSTMCell),
            ("lstm-linen-optimized", nn.OptimizedLSTMCell),
        )
    ),
    Case(
        "gru-linen",
        lambda: linen(Flax(nn.GRUCell(5), start=True), normal(0, *XS)),
        (factor(5, "pf"),),
        0,
    ),
    Case("rnn-tanh", lambda: plain(elman(jnp.tanh), ELMAN, normal(0, *XS)), (factor(5, "pf"),), 0),
    Case(
        "rnn-relu", lambda: plain(elman(jax.nn.relu), ELMAN, normal(0, *XS)), (factor(5, "ps"),), 5
    ),
    Case(
        "rnn-relu-learned-start",
        lambda: plain(elman(jax.nn.relu, learned=True), {**ELMAN, "start": (5,)}, normal(0, *XS)),
        (factor(5, "ps"),),
        5,
    ),
    Case("shared-zero-state", two_layers, (factor(5, "pf"), factor(5, "ps")), 5),
    Case(
        "rnn-fori-loop",
        lambda: plain(fixed_point, ELMAN, normal(0, 2, 3)),
        (factor(5, "pf"),),
        0,
    ),
    Case(
        "cond",
        lambda: plain(
            branches, {"w": (3, 5), "b": (5,), "u": (5, 2), "v": (5, 2)}, normal(0, 2, 3)
        ),
        (factor(5, "ps"),),
        5,
    ),
    # The stream is linear: scaled and flipped per unit over all layers at once.
    Case(
        "residual-scan",
        lambda: plain(
            residual_scan,
            {"in": (2, 5), "w1": (3, 5, 7), "b1": (3, 7), "w2": (3, 7, 5), "out": (5, 11)},
            normal(0, 4, 2),
        ),
        (factor(5, "psf"), factor(7, "ps", copies=3)),
        5 + 21,
    ),
    # Layers without a residual stream, each with units of its own; the first is linear.
    Case(
        "deep-scan",
        lambda: plain(
            deep_scan,
            {"in": (2, 5), "w": (3, 5, 5), "b": (3, 5), "out": (5, 11)},
            normal(0, 4, 2),
        ),
        (factor(5, "psf"), *[factor(5, "ps")] * 3),
        20,
    ),
)
