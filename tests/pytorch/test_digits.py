"""Networks trained in PyTorch meet: aligned here, merged and evaluated there."""

import copy
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

import onebasin as ob
from pytorch.modules import ResNet, build


def data() -> Any:
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x, y = (digits.data[order] / 16).astype(np.float32), digits.target[order]
    x = torch.from_numpy(x).reshape(-1, 1, 8, 8)
    return (x[:1297], torch.from_numpy(y[:1297])), (x[1297:], torch.from_numpy(y[1297:]))


TRAIN, TEST = data()


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 128),
        nn.ReLU(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def resnet() -> nn.Module:
    return ResNet(widths=(32, 64))


def trained(make: Callable[[], nn.Module], seed: int, steps: int, decay: float) -> nn.Module:
    torch.manual_seed(seed)
    module = make()
    optimiser = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1, 0.01, steps)
    for _ in range(steps):
        at = torch.randint(0, len(TRAIN[1]), (128,))
        optimiser.zero_grad()
        functional.cross_entropy(module(TRAIN[0][at]), TRAIN[1][at]).backward()
        optimiser.step()
        schedule.step()
    return module.eval()


def loss_and_error(module: nn.Module) -> tuple[float, float]:
    with torch.no_grad():
        logits = module(TEST[0])
    wrong = (logits.argmax(1) != TEST[1]).double().mean()
    return float(functional.cross_entropy(logits, TEST[1])), float(wrong)


def pair(make: Callable[[], nn.Module], steps: int, decay: float, cost: str) -> Any:
    a, b = (trained(make, seed, steps, decay) for seed in range(2))
    net, first = ob.from_torch(a, TRAIN[0][:4])
    second = ob.from_torch(b, TRAIN[0][:4])[1]
    symmetry = ob.discover(net.apply, first, TRAIN[0][:4].numpy())
    at_work = {} if cost == "weights" else {"apply_fn": net.apply, "inputs": TRAIN[0][:100].numpy()}
    moved = ob.align(symmetry, second, to=first, cost=cost, **at_work).params
    return a, b, net, first, second, moved


@pytest.fixture(scope="module")
def mlps() -> Any:
    return pair(mlp, 1500, 3e-3, "weights")


@pytest.fixture(scope="module")
def resnets() -> Any:
    return pair(resnet, 150, 5e-3, "activations")


def merged(a: Any, b: Any, module: nn.Module) -> nn.Module:
    return ob.to_torch(ob.interpolate(a, b, 0.5), copy.deepcopy(module))


def height(net: Any, a: Any, b: Any) -> float:
    test = TEST[0].numpy(), TEST[1].numpy()
    return float(ob.barrier(ob.marginal_loss(net.apply, *test), a, b, 7).height["loss"])


def test_mlps_meet(mlps: Any) -> None:
    a, b, net, first, second, moved = mlps
    # The network that was moved is the same function, and trained well.
    there = loss_and_error(ob.to_torch(moved, copy.deepcopy(b)))
    assert there == pytest.approx(loss_and_error(b), abs=1e-4)
    assert there[1] < 0.06
    assert height(net, first, moved) <= 0.1 * height(net, first, second)
    assert loss_and_error(merged(first, moved, a))[1] <= there[1] + 0.02


def fresh_statistics(module: nn.Module, inputs: torch.Tensor) -> nn.Module:
    """BatchNorm reset as torch users write it."""
    for child in module.modules():
        if isinstance(child, nn.BatchNorm2d):
            child.reset_running_stats()
            child.momentum = None
    with torch.no_grad():
        module.train()(inputs)
    return module.eval()


def test_resnets_meet(resnets: Any) -> None:
    a, b, _, first, second, moved = resnets
    there = loss_and_error(ob.to_torch(moved, copy.deepcopy(b)))
    assert there == pytest.approx(loss_and_error(b), abs=1e-3)
    assert there[1] < 0.03
    raw, aligned = (
        loss_and_error(fresh_statistics(merged(first, other, a), TRAIN[0]))
        for other in (second, moved)
    )
    ends = max(loss_and_error(a)[0], there[0])
    assert aligned[0] - ends <= 0.25 * (raw[0] - ends)
    assert aligned[1] < 0.1 < 0.4 < raw[1]


def test_reset_statistics_are_those_that_torch_computes() -> None:
    module, other = (build("resnet", seed)[0] for seed in range(2))
    some = TRAIN[0][:60]
    net, first = ob.from_torch(module, some[:4])
    second = ob.from_torch(other, some[:4])[1]
    half = ob.interpolate(first, second, 0.5)
    found = ob.reset_batch_norm(net.apply, half, some.numpy()).repaired
    # One layer after the other, as ours does it.
    expected = ob.to_torch(half, module)
    for _ in range(7):
        fresh_statistics(expected, some)
    for name, x in expected.state_dict().items():
        if name.endswith("running_mean"):
            np.testing.assert_allclose(found[name], x, rtol=1e-3, atol=1e-3, err_msg=name)
        if name.endswith("running_var"):
            # PyTorch keeps the unbiased estimate.
            np.testing.assert_allclose(found[name], x, rtol=0.02, err_msg=name)


def test_repair_gives_units_the_statistics_of_the_ends(mlps: Any) -> None:
    a, _, net, first, _, moved = mlps
    half = ob.interpolate(first, moved, 0.5)
    inputs = TRAIN[0].numpy()
    found = ob.repair(net.apply, half, first, moved, inputs)
    assert set(found.scales) == {"1.weight", "3.weight"}

    def spread(params: Any) -> np.ndarray:
        module = ob.to_torch(params, copy.deepcopy(a))
        with torch.no_grad():
            return module[:4](TRAIN[0]).std(0, correction=0).numpy()

    goal = (spread(first) + spread(moved)) / 2
    np.testing.assert_allclose(spread(found.repaired), goal, rtol=1e-3)
    assert np.mean(spread(half)) < np.mean(goal)


def test_inference_takes_the_converted_network(mlps: Any) -> None:
    net, first = mlps[2], mlps[3]
    train = TRAIN[0][:100].numpy(), TRAIN[1][:100].numpy()
    problem = ob.Problem(net, train, prior=ob.Normal(0.1))
    assert set(problem.shapes()) == set(first)
    draws = ob.infer.ensemble(jax.random.key(0), problem, num_networks=2, epochs=2)
    probs = ob.predict(net.apply, draws, train[0])
    assert probs.shape == (2, 100, 10)
    symmetry = ob.discover(net.apply, first, train[0][:2])
    found = ob.compact(symmetry, draws)
    assert isinstance(found.posterior, ob.Gaussian)
    assert set(found.posterior.mean) == set(first)
    assert set(ob.canonicalize(symmetry, first)) == set(first)
