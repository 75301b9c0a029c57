"""Merging networks that PyTorch trained on digits: ours beside published re-basin code.

Pairs of MLPs and of small ResNets, trained from different seeds; the second is moved to the first
in each way, and the loss on test data is taken in PyTorch along the straight line between them.
BatchNorm statistics are computed anew at every point. The barrier is the largest rise over the line
between the ends.

    python benchmarks/torch_merging.py --out results/bench --peers DIR ...

Peers are taken from folders, since two of them call their package `rebasin`:

    pip install --no-deps --target DIR rebasin==0.0.47 torchview graphviz
    pip install --no-deps --target DIR sinkhorn-rebasin==0.0.2 torchviz graphviz
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import itertools
import pathlib
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

import numpy as np
from shared import plain, record  # type: ignore[import-not-found]
from sklearn.datasets import load_digits

import onebasin as ob

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError:
    print("needs PyTorch: run it with .venv-torch/bin/python, which make test-torch sets up")
    raise SystemExit(0) from None

from torch_conversion import TorchBlock  # type: ignore[import-not-found]

TRAINED = 1297
POINTS = 11
Way = Callable[[nn.Module, nn.Module, Any], nn.Module]


def mlp() -> nn.Module:
    """Two hidden layers of 128."""
    sizes = (64, 128, 128, 10)
    layers: list[nn.Module] = [nn.Flatten()]
    for ins, outs in itertools.pairwise(sizes):
        layers += [nn.Linear(ins, outs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def resnet() -> nn.Module:
    """Two blocks, of 32 and 64 channels."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()),
        *(TorchBlock(32, 32, 1), TorchBlock(32, 64, 2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
    )


# With the steps of training and the weight decay.
MODELS: dict[str, tuple[Callable[[], nn.Module], int, float]] = {
    "MLP": (mlp, 1500, 3e-3),
    "ResNet": (resnet, 150, 5e-3),
}


def data() -> tuple[Any, Any]:
    """Digits as images, for training and for testing."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x = torch.from_numpy((digits.data[order] / 16).astype(np.float32)).reshape(-1, 1, 8, 8)
    y = torch.from_numpy(digits.target[order])
    return (x[:TRAINED], y[:TRAINED]), (x[TRAINED:], y[TRAINED:])


def trained(name: str, seed: int, train: Any) -> nn.Module:
    """A network from its seed."""
    make, steps, decay = MODELS[name]
    torch.manual_seed(seed)
    module = make()
    optimiser = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1, 0.01, steps)
    for _ in range(steps):
        at = torch.randint(0, len(train[1]), (128,))
        optimiser.zero_grad()
        functional.cross_entropy(module(train[0][at]), train[1][at]).backward()
        optimiser.step()
        schedule.step()
    return module.eval()


def between(a: nn.Module, b: nn.Module, t: float, inputs: Any) -> nn.Module:
    """A point on the line, with BatchNorm statistics of its own."""
    module = copy.deepcopy(a)
    with torch.no_grad():
        for x, y in zip(module.parameters(), b.parameters(), strict=True):
            x.lerp_(y, t)
        norms = [child for child in module.modules() if isinstance(child, nn.BatchNorm2d)]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None
        if norms:
            module.train()(inputs)
    return module.eval()


def curve(a: nn.Module, b: nn.Module, train: Any, test: Any) -> tuple[float, float]:
    """The barrier of the test loss, and the share of errors in the middle."""
    losses, errors = [], []
    times = np.linspace(0, 1, POINTS)
    for t in times:
        with torch.no_grad():
            logits = between(a, b, float(t), train[0])(test[0])
        losses.append(float(functional.cross_entropy(logits, test[1])))
        errors.append(float((logits.argmax(1) != test[1]).double().mean()))
    line = (1 - times) * losses[0] + times * losses[-1]
    return float(np.max(np.array(losses) - line)), errors[POINTS // 2]


def ours(cost: str) -> Way:
    """By our alignment, without scalings: fresh statistics of BatchNorm would undo part of them."""

    def moved(a: nn.Module, b: nn.Module, inputs: Any) -> nn.Module:
        net, first = ob.from_torch(a, inputs[:4])
        second = ob.from_torch(b, inputs[:4])[1]
        symmetry = ob.discover(net.apply, first, inputs[:4].numpy())
        work: dict[str, Any] = {}
        if cost != "weights":
            work = {"apply_fn": net.apply, "inputs": inputs[:200].numpy()}
        found = ob.align(symmetry, second, to=first, cost=cost, scaling=None, **work)
        return ob.to_torch(found.params, copy.deepcopy(b))

    return moved


def scipy_descent(a: nn.Module, b: nn.Module, inputs: Any) -> nn.Module:
    """By a plain coordinate descent over the layers of an MLP, written by hand."""
    layers, moved = [], copy.deepcopy(b)
    for module in (a, moved):
        linear = [child for child in module.modules() if isinstance(child, nn.Linear)]
        layers.append([(x.weight.detach().numpy().T, x.bias.detach().numpy()) for x in linear])
    perms = plain.descent(layers[0], layers[1], 0)[2]
    with torch.no_grad():
        for number, x in enumerate(linear):
            weight, bias = x.weight.clone(), x.bias.clone()
            weight = weight[:, perms[number - 1]] if number else weight
            last = number == len(perms)
            x.weight.copy_(weight if last else weight[perms[number]])
            x.bias.copy_(bias if last else bias[perms[number]])
    return moved


def rebasin(a: nn.Module, b: nn.Module, inputs: Any) -> nn.Module:
    """By weight matching as the package `rebasin` does it."""
    from rebasin import PermutationCoordinateDescent  # type: ignore[import-not-found]

    moved = copy.deepcopy(b)
    PermutationCoordinateDescent(a, moved, inputs[:4]).rebasin()
    return moved


def sinkhorn(a: nn.Module, b: nn.Module, inputs: Any) -> nn.Module:
    """By gradients through Sinkhorn's algorithm on the distance of weights; the best of all."""
    from rebasin import RebasinNet
    from rebasin.loss import DistL2Loss  # type: ignore[import-not-found]

    search = RebasinNet(b, input_shape=(1, *inputs.shape[1:]))
    search.identity_init()
    distance = DistL2Loss(copy.deepcopy(a))
    optimiser = torch.optim.AdamW(search.p.parameters(), lr=0.1)
    best, moved = float("inf"), b
    for _ in range(300):
        search.train()
        loss = distance(search())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        search.eval()
        with torch.no_grad():
            found = float(distance(search()))
        if found < best:
            best, moved = found, copy.deepcopy(search())
    return moved.eval()


PEERS: dict[str, Way] = {"rebasin": rebasin, "sinkhorn-rebasin": sinkhorn}


@contextlib.contextmanager
def packages_of(folder: pathlib.Path) -> Iterator[None]:
    """Imports from a folder, forgotten afterwards: another one has the same names."""
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in [n for n in sys.modules if n.partition(".")[0] == "rebasin"]:
            del sys.modules[name]


def ways(name: str, folders: list[pathlib.Path]) -> Iterator[tuple[str, Way, Any]]:
    """What moves one network to another: a name, a function, and where its packages are."""
    here = contextlib.nullcontext()
    yield "none", lambda a, b, inputs: b, here
    yield "ours, weights", ours("weights"), here
    yield "ours, activations", ours("activations"), here
    if name == "MLP":
        yield "SciPy, layers by hand", scipy_descent, here
    for folder in folders:
        for found in metadata.distributions(path=[str(folder)]):
            if found.name in PEERS:
                yield f"{found.name} {found.version}", PEERS[found.name], packages_of(folder)


def measure(name: str, seed: int, folders: list[pathlib.Path]) -> list[dict[str, Any]]:
    """One pair, merged in every way."""
    train, test = data()
    a, b = (trained(name, 2 * seed + number, train) for number in range(2))
    rows = []
    for way, function, packages in ways(name, folders):
        start = time.perf_counter()
        with packages:
            moved = function(a, b, train[0])
        seconds = time.perf_counter() - start
        barrier, error = curve(a, moved, train, test)
        # Statistics of BatchNorm, which not all ways move along, are computed anew here too.
        with torch.no_grad():
            ends = [between(module, module, 0.0, train[0])(test[0]) for module in (b, moved)]
        changed = float((ends[1] - ends[0]).abs().max() / ends[0].abs().max())
        rows.append(
            {"model": name, "pair": seed, "way": way, "barrier": barrier, "error": error}
            | {"seconds": seconds, "function_changed": changed}
        )
        print(
            f"{name:6s} {seed:4d}  {way:25s} {barrier:8.3f} {100 * error:6.1f}% {seconds:7.2f}s"
            f" {changed:9.1e}",
            flush=True,
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, help="a folder for torch-merging.json")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--peers", type=pathlib.Path, nargs="*", default=[], help="see above")
    options = parser.parse_args()
    ob.from_torch(nn.Linear(3, 2), torch.ones(1, 3))
    print("model  pair  way                        barrier  error  seconds  function changed")
    rows = [
        row
        for name in MODELS
        for pair in range(options.pairs)
        for row in measure(name, pair, options.peers)
    ]
    record.save(options.out, "torch-merging", {"points": POINTS, "rows": rows})


if __name__ == "__main__":
    main()
