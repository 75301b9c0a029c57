"""Recurrent layers as scans over time, and their cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from onebasin.torch.ops.shape import Stacked
from onebasin.torch.table import Family

recurrent = Family("recurrent")
Cell = Callable[[Any, Any, Any], Any]


def _affine(x: Any, weight: Any, bias: Any) -> Any:
    product = jnp.matmul(x, weight.T)
    return product if bias is None else product + bias


def _gru(inputs: Any, state: Any, hidden: Any) -> Any:
    r_in, z_in, n_in = jnp.split(inputs, 3, axis=-1)
    r_hid, z_hid, n_hid = jnp.split(hidden(state), 3, axis=-1)
    reset, update = jax.nn.sigmoid(r_in + r_hid), jax.nn.sigmoid(z_in + z_hid)
    new = jnp.tanh(n_in + reset * n_hid)
    return (1 - update) * new + update * state


def _lstm(inputs: Any, states: Any, hidden: Any, projection: Any = None) -> tuple[Any, Any]:
    state, memory = states
    i, f, g, o = jnp.split(inputs + hidden(state), 4, axis=-1)
    memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
    state = jax.nn.sigmoid(o) * jnp.tanh(memory)
    return (state if projection is None else jnp.matmul(state, projection.T)), memory


def _elman(activation: Callable[[Any], Any]) -> Cell:
    return lambda inputs, state, hidden: activation(inputs + hidden(state))


def _direction(cell: Any, x: Any, start: Any, weights: list[Any], reverse: bool) -> Any:
    """One layer in one direction, time on the first axis.

    What the inputs contribute does not wait for the state: it is one product over all times.
    """
    w_in, w_hid, b_in, b_hid, *more = weights
    inputs = _affine(x, w_in, b_in)

    def step(state: Any, now: Any) -> tuple[Any, Any]:
        new = cell(now, state, lambda s: _affine(s, w_hid, b_hid), *more)
        return new, new[0] if isinstance(new, tuple) else new

    return lax.scan(step, start, inputs, reverse=reverse)


def _layers(
    cell: Any,
    x: Any,
    starts: Any,
    params: Any,
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Any, list[Any]]:
    """Every layer in its directions; the last states in the order in which torch stacks them."""
    directions = 2 if bidirectional else 1
    each = len(params) // (num_layers * directions)
    x = jnp.swapaxes(x, 0, 1) if batch_first and x.ndim == 3 else x
    ends = []
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            number = layer * directions + direction
            weights = list(params[number * each : (number + 1) * each])
            if not has_biases:
                weights[2:2] = [None, None]
            start = jax.tree.map(lambda s, n=number: s[n], starts)
            end, output = _direction(cell, x, start, weights, direction == 1)
            ends.append(end)
            outputs.append(output)
        x = outputs[0] if directions == 1 else jnp.concatenate(outputs, axis=-1)
    x = jnp.swapaxes(x, 0, 1) if batch_first and x.ndim == 3 else x
    return x, ends


def _layer_rule(cell: Cell) -> Any:
    def rule(
        x: Any,
        start: Any,
        params: Any,
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Any, Any]:
        options = has_biases, num_layers, bidirectional, batch_first
        outputs, ends = _layers(cell, x, start, params, *options)
        return outputs, Stacked(ends)

    return rule


@recurrent("lstm.input")
def lstm(
    x: Any,
    start: Any,
    params: Any,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Any, Any, Any]:
    options = has_biases, num_layers, bidirectional, batch_first
    outputs, ends = _layers(_lstm, x, tuple(start), params, *options)
    return outputs, Stacked([h for h, _ in ends]), Stacked([c for _, c in ends])


def _cell_rule(cell: Any) -> Any:
    def rule(x: Any, state: Any, w_in: Any, w_hid: Any, b_in: Any = None, b_hid: Any = None) -> Any:
        state = tuple(state) if isinstance(state, list | tuple) else state
        return cell(_affine(x, w_in, b_in), state, lambda s: _affine(s, w_hid, b_hid))

    return rule


recurrent.rows(
    {
        "gru.input": _layer_rule(_gru),
        "rnn_tanh.input": _layer_rule(_elman(jnp.tanh)),
        "rnn_relu.input": _layer_rule(_elman(jax.nn.relu)),
        "gru_cell": _cell_rule(_gru),
        "lstm_cell": _cell_rule(_lstm),
        "rnn_tanh_cell": _cell_rule(_elman(jnp.tanh)),
        "rnn_relu_cell": _cell_rule(_elman(jax.nn.relu)),
    }
)
