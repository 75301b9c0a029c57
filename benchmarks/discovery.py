"""Seconds to discover a group, and how they grow with depth.

Analysis (tracing and interpreting the program) and proof (compiling and running the model on random
parameters) are timed apart, the best of a few runs each. Growth is that of processor time, which a
busy machine changes least. Shapes stand for parameters and inputs: only the proof computes.

    python benchmarks/discovery.py --out results/bench
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import time
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from shared import record  # type: ignore[import-not-found]

import onebasin as ob
from onebasin.symmetry.discover import analyse, read
from onebasin.symmetry.program import trace

DEPTHS = (10, 25, 50, 100, 200)
Model = tuple[Callable[[Any, Any], Any], Any, Any]


@dataclasses.dataclass
class Row:
    """What one model took."""

    model: str
    tensors: int
    parameters: int
    equations: int
    factors: int
    analysis_seconds: float
    analysis_cpu_seconds: float
    proof_seconds: float

    @property
    def equations_per_second(self) -> float:
        return self.equations / self.analysis_cpu_seconds


def residual_mlp(depth: int, width: int = 64) -> Model:
    """Blocks x + W2 relu(W1 norm(x)), a new hidden layer in each."""

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            x = nn.Dense(width)(x)
            for _ in range(depth):
                x = x + nn.Dense(width)(nn.relu(nn.Dense(2 * width)(nn.LayerNorm()(x))))
            return nn.Dense(10)(x)

    return shaped(Net(), (8, 32))


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1, each with BatchNorm, around a shortcut."""

    features: int
    stride: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        def conv(y: jax.Array, features: int, size: int, stride: int = 1) -> jax.Array:
            y = nn.Conv(features, (size, size), (stride, stride), use_bias=False)(y)
            return nn.BatchNorm(use_running_average=True)(y)

        y = nn.relu(conv(x, self.features, 1))
        y = nn.relu(conv(y, self.features, 3, self.stride))
        y = conv(y, 4 * self.features, 1)
        if x.shape != y.shape:
            x = conv(x, 4 * self.features, 1, self.stride)
        return nn.relu(x + y)


class ResNet50(nn.Module):
    """As published; BatchNorm in inference mode."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.Conv(64, (7, 7), (2, 2), use_bias=False)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=True)(x))
        x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
        for stage, blocks in enumerate((3, 4, 6, 3)):
            for block in range(blocks):
                x = Bottleneck(64 * 2**stage, 2 if stage and not block else 1)(x)
        return nn.Dense(1000)(x.mean(axis=(1, 2)))


class ViT(nn.Module):
    """ViT-B/16: 12 pre-norm blocks, 12 heads of 64."""

    depth: int = 12
    width: int = 768
    heads: int = 12

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.Conv(self.width, (16, 16), (16, 16))(x)
        x = x.reshape(x.shape[0], -1, self.width)
        token = self.param("token", nn.initializers.zeros, (1, 1, self.width))
        x = jnp.concatenate([jnp.broadcast_to(token, (x.shape[0], 1, self.width)), x], axis=1)
        x = x + self.param("positions", nn.initializers.normal(0.02), (1, *x.shape[1:]))
        for _ in range(self.depth):
            x = x + nn.MultiHeadDotProductAttention(self.heads)(nn.LayerNorm()(x))
            x = x + nn.Dense(self.width)(nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x))))
        return nn.Dense(1000)(nn.LayerNorm()(x)[:, 0])


def shaped(module: nn.Module, inputs: tuple[int, ...]) -> Model:
    """A module on shapes alone."""
    x = jax.ShapeDtypeStruct(inputs, jnp.float32)
    params = jax.eval_shape(module.init, jax.random.key(0), x)
    return (lambda params, x: module.apply(params, x)), params, x


def measure(name: str, model: Model, repeats: int) -> Row:
    """The best of a few runs, analysis and proof apart."""
    apply_fn, params, inputs = model
    analysis, processor, proof = [], [], []
    for _ in range(repeats):
        start, cpu = time.perf_counter(), time.process_time()
        found = analyse(read(apply_fn, params, inputs), params)
        analysis.append(time.perf_counter() - start)
        processor.append(time.process_time() - cpu)
        start = time.perf_counter()
        ob.check_symmetry(found.symmetry, apply_fn, params, inputs, num_elements=1, power=False)
        proof.append(time.perf_counter() - start)
    leaves = jax.tree.leaves(params["params"])
    return Row(
        model=name,
        tensors=len(leaves),
        parameters=sum(int(np.prod(x.shape)) for x in leaves),
        equations=len(trace(apply_fn, params, inputs).equations),
        factors=len(found.symmetry.factors),
        analysis_seconds=min(analysis),
        analysis_cpu_seconds=min(processor),
        proof_seconds=min(proof),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=pathlib.Path, help="write the numbers into this folder")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    models: dict[str, Callable[[], Model]] = {
        f"residual MLP, depth {depth}": lambda depth=depth: residual_mlp(depth)  # type: ignore[misc]
        for depth in DEPTHS
    }
    models["ResNet-50"] = lambda: shaped(ResNet50(), (1, 224, 224, 3))
    models["ViT-B/16"] = lambda: shaped(ViT(), (1, 224, 224, 3))

    print(f"{'model':25s} tensors equations factors  analysis     proof  equations/s")
    rows = []
    for name, make in models.items():
        row = measure(name, make(), options.repeats)
        rows.append(row)
        print(
            f"{name:25s} {row.tensors:7,d} {row.equations:9,d} {row.factors:7,d}"
            f" {row.analysis_seconds:8.3f}s {row.proof_seconds:8.3f}s"
            f" {row.equations_per_second:12,.0f}",
            flush=True,
        )
    deep = [row for row in rows if "depth" in row.model]
    growth = deep[0].equations_per_second / deep[-1].equations_per_second
    print(f"analysis per equation, depth {DEPTHS[-1]} against {DEPTHS[0]}: {growth:.2f} times")
    result = {
        "repeats": options.repeats,
        "growth_per_equation": growth,
        "rows": [
            {**dataclasses.asdict(row), "equations_per_second": row.equations_per_second}
            for row in rows
        ],
    }
    record.save(options.out, "discovery", result)


if __name__ == "__main__":
    main()
