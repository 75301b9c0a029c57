"""Converting PyTorch modules: how long it takes, and what the result costs to run.

ResNet-18 and a ViT-B-sized module are converted, after one small conversion has loaded what PyTorch
loads late. The converted function, jitted, is timed against the
same network in Flax and against the module itself, in turns, the best of a few rounds each, on all
cores.

    python benchmarks/torch_conversion.py --out results/bench
"""

from __future__ import annotations

import argparse
import pathlib
import time
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from discovery import ViT  # type: ignore[import-not-found]
from shared import record  # type: ignore[import-not-found]

import onebasin as ob

try:
    import torch
    from torch import nn as tnn
except ImportError:
    print("needs PyTorch: run it with .venv-torch/bin/python, which make test-torch sets up")
    raise SystemExit(0) from None

GOAL_SECONDS = 5.0
GOAL_RATIO = 1.2


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with BatchNorm around a shortcut."""

    features: int
    stride: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        def conv(y: jax.Array, size: int, stride: int) -> jax.Array:
            pad = [(size // 2, size // 2)] * 2
            y = nn.Conv(self.features, (size, size), (stride, stride), pad, use_bias=False)(y)
            return nn.BatchNorm(use_running_average=True)(y)

        y = conv(nn.relu(conv(x, 3, self.stride)), 3, 1)
        if x.shape != y.shape:
            x = conv(x, 1, self.stride)
        return nn.relu(x + y)


class ResNet18(nn.Module):
    """As published, for images of 224 x 224."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.Conv(64, (7, 7), (2, 2), [(3, 3)] * 2, use_bias=False)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=True)(x))
        x = nn.max_pool(x, (3, 3), (2, 2), [(1, 1)] * 2)
        for stage in range(4):
            for block in range(2):
                x = BasicBlock(64 * 2**stage, 2 if stage and not block else 1)(x)
        return nn.Dense(1000)(x.mean(axis=(1, 2)))


class TorchBlock(tnn.Module):
    """The same block as torchvision writes it."""

    def __init__(self, ins: int, outs: int, stride: int):
        super().__init__()
        self.conv1 = tnn.Conv2d(ins, outs, 3, stride, 1, bias=False)
        self.bn1 = tnn.BatchNorm2d(outs)
        self.conv2 = tnn.Conv2d(outs, outs, 3, 1, 1, bias=False)
        self.bn2 = tnn.BatchNorm2d(outs)
        self.relu = tnn.ReLU(inplace=True)
        self.downsample: tnn.Module = tnn.Identity()
        if stride > 1 or ins != outs:
            self.downsample = tnn.Sequential(
                tnn.Conv2d(ins, outs, 1, stride, bias=False), tnn.BatchNorm2d(outs)
            )

    def forward(self, x: Any) -> Any:
        """Two convolutions around a shortcut."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += self.downsample(x)
        return self.relu(y)


def torch_resnet18() -> tnn.Module:
    """ResNet-18 with torchvision's layers."""
    layers: list[tnn.Module] = [
        tnn.Conv2d(3, 64, 7, 2, 3, bias=False),
        tnn.BatchNorm2d(64),
        tnn.ReLU(inplace=True),
        tnn.MaxPool2d(3, 2, 1),
    ]
    ins = 64
    for stage in range(4):
        for block in range(2):
            outs = 64 * 2**stage
            layers.append(TorchBlock(ins, outs, 2 if stage and not block else 1))
            ins = outs
    layers += [tnn.AdaptiveAvgPool2d(1), tnn.Flatten(), tnn.Linear(512, 1000)]
    return tnn.Sequential(*layers).eval()


class TorchViT(tnn.Module):
    """ViT-B/16 from torch's own encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = tnn.Conv2d(3, 768, 16, 16)
        self.token = tnn.Parameter(torch.zeros(1, 1, 768))
        self.positions = tnn.Parameter(torch.randn(1, 197, 768) * 0.02)
        layer = tnn.TransformerEncoderLayer(
            768, 12, 3072, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = tnn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
        self.norm = tnn.LayerNorm(768)
        self.head = tnn.Linear(768, 1000)

    def forward(self, x: Any) -> Any:
        """Patches, twelve blocks, the class token."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        return self.head(self.norm(self.encoder(x))[:, 0])


# With the number of images: convolution kernels lie in another order in PyTorch, and moving them
# takes as long as a few images.
MODELS: dict[str, tuple[Callable[[], tnn.Module], nn.Module, int]] = {
    "ResNet-18": (torch_resnet18, ResNet18(), 16),
    "ViT-B/16": (lambda: TorchViT().eval(), ViT(), 2),
}


def in_turns(functions: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The best seconds of each, taken one after the other in every round."""
    best = dict.fromkeys(functions, float("inf"))
    for number in range(rounds + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            jax.block_until_ready(function())
            seconds = time.perf_counter() - start
            if number:
                best[name] = min(best[name], seconds)
    return best


def measure(name: str, rounds: int) -> dict[str, Any]:
    """Seconds for a conversion, and for a forward pass by each way."""
    make, twin, batch = MODELS[name]
    module = make()
    x = torch.randn(batch, 3, 224, 224)
    start, cpu = time.perf_counter(), time.process_time()
    net, params = ob.from_torch(module, x)
    conversion, processor = time.perf_counter() - start, time.process_time() - cpu
    images = jnp.asarray(x.numpy())
    own = jnp.asarray(np.moveaxis(x.numpy(), 1, -1))
    weights = jax.jit(twin.init)(jax.random.key(0), own[:1])
    converted, flax = jax.jit(net.apply), jax.jit(twin.apply)

    def plain() -> None:
        with torch.no_grad():
            module(x)

    seconds = in_turns(
        {
            "converted": lambda: converted(params, images),
            "flax": lambda: flax(weights, own),
            "torch": plain,
        },
        rounds,
    )
    return {
        "model": name,
        "batch": batch,
        "parameters": sum(int(p.size) for p in params.values()),
        "conversion_seconds": conversion,
        "conversion_cpu_seconds": processor,
        **{f"{way}_seconds": value for way, value in seconds.items()},
        "converted_over_flax": seconds["converted"] / seconds["flax"],
        "converted_over_torch": seconds["converted"] / seconds["torch"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=pathlib.Path, help="a folder for torch.json")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    ob.from_torch(tnn.Linear(3, 2), torch.ones(1, 3))
    print("model      parameters  conversion  (CPU)  converted      Flax     torch  /Flax  /torch")
    rows = []
    for name in MODELS:
        row = measure(name, options.rounds)
        rows.append(row)
        print(
            f"{name:10s} {row['parameters']:10,d} {row['conversion_seconds']:10.2f}s"
            f" {row['conversion_cpu_seconds']:5.2f}s"
            f" {row['converted_seconds']:9.3f}s {row['flax_seconds']:8.3f}s"
            f" {row['torch_seconds']:8.3f}s {row['converted_over_flax']:6.2f}"
            f" {row['converted_over_torch']:7.2f}",
            flush=True,
        )
    goals = {"conversion_seconds": GOAL_SECONDS, "converted_over_flax": GOAL_RATIO}
    result = {"rounds": options.rounds, "goals": goals, "rows": rows}
    record.save(options.out, "torch", result)


if __name__ == "__main__":
    main()
