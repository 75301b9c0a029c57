"""Models in which signals vanish, saturate or drown at the parameters that they start with."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from zoo.case import Model, normal, plain

Array = jax.Array
Params = dict[str, Any]
Norm = Callable[[Array, Params], Array]


def layers(depth: int, width: int, bias: bool = True, extra: tuple[str, ...] = ()) -> list[Params]:
    """Weights as PyTorch draws them: each layer loses more than half of its signal."""
    found = []
    for number in range(depth):
        rows = 5 if number == 0 else width
        bound = 1 / np.sqrt(rows)
        rng = np.random.default_rng(number)
        layer = {"w": rng.uniform(-bound, bound, (rows, width)).astype(np.float32)}
        if bias:
            layer["b"] = rng.uniform(-bound, bound, width).astype(np.float32)
        layer |= {name: np.ones(width, np.float32) for name in extra}
        found.append(layer)
    return found


def straight(
    depth: int,
    between: Callable[[Array], Array],
    *,
    width: int = 8,
    bias: bool = True,
    head: Callable[[Array], Array] = lambda z: z,
    norm: Norm = lambda h, layer: h,
    extra: tuple[str, ...] = (),
) -> Model:
    """Layers one after the other, all alike."""

    def apply(params: list[Params], x: Array) -> Array:
        *inner, last = params
        for layer in inner:
            x = between(norm(x @ layer["w"] + layer.get("b", 0.0), layer))
        return head(x @ last["w"])

    last = {"w": normal(depth, width, 3) / np.sqrt(width)}
    return apply, [*layers(depth, width, bias, extra), last], normal(0, 6, 5)


def residual(depth: int) -> Model:
    """x + relu(x w) v, with nothing that keeps its size."""

    def apply(params: list[Params], x: Array) -> Array:
        first, *inner, last = params
        x = x @ first["w"]
        for layer in inner:
            x = x + jax.nn.relu(x @ layer["w"] + layer["b"]) @ layer["v"]
        return x @ last["w"]

    inner = [layer | {"v": normal(9, 8, 8) / 8} for layer in layers(depth + 1, 8)[1:]]
    first, last = {"w": normal(0, 5, 8) / 2}, {"w": normal(1, 8, 3)}
    return apply, [first, *inner, last], normal(0, 6, 5)


def layer_norm(h: Array, layer: Params) -> Array:
    h = h - h.mean(-1, keepdims=True)
    return h * lax.rsqrt(jnp.mean(h**2, -1, keepdims=True) + 1e-6) * layer["gain"]


def rms_norm(h: Array, layer: Params) -> Array:
    return h * lax.rsqrt(jnp.mean(h**2, -1, keepdims=True) + 1e-6) * layer["gain"]


def batch_norm(h: Array, layer: Params) -> Array:
    return (h - layer["mean"]) * lax.rsqrt(layer["var"] + 1e-3) * layer["gain"]


def stacked(depth: int) -> Model:
    """The layers in a loop."""

    def apply(params: Params, x: Array) -> Array:
        def step(h: Array, layer: tuple[Array, Array, Array]) -> tuple[Array, None]:
            w, b, v = layer
            return jax.nn.relu(h @ w + b) @ v, None

        h = x @ params["first"]
        h, _ = lax.scan(step, h, (params["w"], params["b"], params["v"]))
        return h @ params["last"]

    shapes = {"first": (5, 6), "last": (6, 3)}
    small = {"w": (depth, 6, 8), "b": (depth, 8), "v": (depth, 8, 6)}
    apply_fn, params, x = plain(apply, {**shapes, **small}, normal(0, 6, 5))
    return apply_fn, params | {name: 0.1 * params[name] for name in small}, x


def squeeze_and_excite(params: Params, x: Array) -> Array:
    """Blocks as EfficientNet has them: expand, filter each channel, weigh, project."""

    def conv(h: Array, kernel: Array, groups: int = 1) -> Array:
        numbers = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            h, kernel, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=groups
        )

    def normed(h: Array, norm: Params) -> Array:
        return batch_norm(h, norm) + norm["bias"]

    x = jax.nn.silu(normed(conv(x, params["stem"]), params["stem_norm"]))
    for number, block in enumerate(params["blocks"]):
        h = jax.nn.silu(normed(conv(x, block["expand"]), block["norm1"]))
        h = jax.nn.silu(normed(conv(h, block["depthwise"], h.shape[-1]), block["norm2"]))
        squeezed = jax.nn.silu(h.mean((1, 2)) @ block["reduce"] + block["reduce_bias"])
        h = h * jax.nn.sigmoid(squeezed @ block["restore"] + block["restore_bias"])[:, None, None]
        h = normed(conv(h, block["project"]), block["norm3"])
        x = x + h if number % 2 else h
    return jax.nn.softmax(x.mean((1, 2)) @ params["head"])


def efficient_net() -> Model:
    """Freshly made, with running statistics of activations that are far from zero."""

    def norm(size: int) -> Params:
        ones = jnp.ones(size)
        return {"gain": ones, "bias": 0 * ones, "mean": 3 * normal(4, size), "var": 25 * ones}

    def block(number: int) -> Params:
        def kernel(seed: int, *shape: int) -> Array:
            return 0.02 * normal(10 * number + seed, *shape)

        return {
            "expand": kernel(0, 1, 1, 4, 8),
            "norm1": norm(8),
            "depthwise": kernel(1, 3, 3, 1, 8),
            "norm2": norm(8),
            "reduce": kernel(2, 8, 3),
            "reduce_bias": jnp.zeros(3),
            "restore": kernel(3, 3, 8),
            "restore_bias": jnp.zeros(8),
            "project": kernel(4, 1, 1, 8, 4),
            "norm3": norm(4),
        }

    params = {
        "stem": 0.02 * normal(0, 3, 3, 3, 4),
        "stem_norm": norm(4),
        "blocks": [block(number) for number in range(6)],
        "head": 0.02 * normal(1, 4, 5),
    }
    return squeeze_and_excite, params, normal(2, 2, 6, 6, 3)


def transformer(params: Params, x: Array) -> Array:
    x = x @ params["embed"]
    for block in params["blocks"]:
        h = layer_norm(x, block)
        query, key, value = (
            jnp.einsum("btm,mhd->bthd", h, block[name]) + block[f"{name}_bias"] for name in "qkv"
        )
        weights = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", query, key))
        x = x + jnp.einsum("bhts,bshd,hdm->btm", weights, value, block["out"])
        x = x + jax.nn.gelu(layer_norm(x, block) @ block["up"]) @ block["down"]
    return jax.nn.softmax(x.mean(1) @ params["head"])


def transformer_of(depth: int) -> Model:
    shapes = {
        **dict.fromkeys("qkv", (6, 2, 3)),
        **{f"{name}_bias": (2, 3) for name in "qkv"},
        "out": (2, 3, 6),
        "up": (6, 8),
        "down": (8, 6),
    }
    blocks = [
        {name: 0.02 * normal(13 * n + i, *shape) for i, (name, shape) in enumerate(shapes.items())}
        | {"gain": jnp.ones(6)}
        for n in range(depth)
    ]
    return (
        transformer,
        {"embed": normal(0, 4, 6), "blocks": blocks, "head": normal(1, 6, 3)},
        normal(2, 2, 4, 4),
    )


NORM = ("gain",)
DEEP: dict[str, Callable[[], Model]] = {
    "relu": lambda: straight(100, jax.nn.relu),
    "relu without biases": lambda: straight(100, jax.nn.relu, bias=False),
    "tanh": lambda: straight(100, jnp.tanh),
    "silu": lambda: straight(100, jax.nn.silu),
    "sigmoid": lambda: straight(50, jax.nn.sigmoid),
    "softplus": lambda: straight(50, jax.nn.softplus),
    "residual": lambda: residual(50),
    "layer norm": lambda: straight(100, jax.nn.relu, norm=layer_norm, extra=NORM),
    "root mean square": lambda: straight(100, jnp.tanh, norm=rms_norm, extra=NORM),
    "batch norm": lambda: straight(
        100, jax.nn.relu, norm=batch_norm, extra=("gain", "mean", "var")
    ),
    "stacked": lambda: stacked(60),
    "softmax": lambda: straight(4, jax.nn.relu, head=lambda z: jax.nn.softmax(300 * z)),
    "logistic": lambda: straight(4, jax.nn.relu, head=lambda z: jax.nn.sigmoid(1000 * z)),
    "tanh head": lambda: straight(4, jax.nn.relu, head=lambda z: jnp.tanh(1000 * z)),
    "wide": lambda: straight(1, jax.nn.relu, width=16_384),
    "efficient net": efficient_net,
    "transformer": lambda: transformer_of(4),
}
