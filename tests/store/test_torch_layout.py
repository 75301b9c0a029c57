"""Torch checkpoints: the network that they become computes what it computed there."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

import onebasin as ob
from onebasin.store import CheckpointError, TorchTensor, open_torch, torch_mapping

WIDTH = 4
Tensors = dict[str, np.ndarray]


def conv(x: Any, weight: np.ndarray, stride: int = 1, padding: int = 0, groups: int = 1) -> Any:
    """A convolution as torch has it: images (N, C, H, W), kernels (O, I, H, W)."""
    return jax.lax.conv_general_dilated(
        x,
        jnp.asarray(weight, jnp.float32),
        (stride, stride),
        [(padding, padding)] * 2,
        feature_group_count=groups,
        dimension_numbers=("NCHW", "OIHW", "NCHW"),
    )


def batch_norm(x: Any, tensors: Tensors, name: str) -> Any:
    mean, var, weight, bias = (
        tensors[f"{name}.{part}"].astype(np.float32)[:, None, None]
        for part in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / np.sqrt(var + 1e-5) * weight + bias


def torch_resnet18(tensors: Tensors, x: Any, skip: str) -> Any:
    x = jax.nn.relu(batch_norm(conv(x, tensors["conv1.weight"], padding=1), tensors, "bn1"))
    for stage in range(1, 5):
        for block in range(2):
            name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = conv(x, tensors[f"{name}.conv1.weight"], stride, 1)
            y = jax.nn.relu(batch_norm(y, tensors, f"{name}.bn1"))
            y = batch_norm(conv(y, tensors[f"{name}.conv2.weight"], 1, 1), tensors, f"{name}.bn2")
            if stride == 2:
                x = conv(x, tensors[f"{name}.{skip}.0.weight"], 2)
                x = batch_norm(x, tensors, f"{name}.{skip}.1")
            x = jax.nn.relu(x + y)
    head = "fc" if skip == "downsample" else "linear"
    return x.mean((2, 3)) @ tensors[f"{head}.weight"].astype(np.float32).T + tensors[f"{head}.bias"]


def resnet18_tensors(skip: str) -> Tensors:
    chance = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {"conv1.weight": (WIDTH, 3, 3, 3)}
    norms = {"bn1": WIDTH}
    before = WIDTH
    for stage in range(1, 5):
        for block in range(2):
            name, width = f"layer{stage}.{block}", WIDTH * 2 ** (stage - 1)
            shapes[f"{name}.conv1.weight"] = (width, before, 3, 3)
            shapes[f"{name}.conv2.weight"] = (width, width, 3, 3)
            norms |= {f"{name}.bn1": width, f"{name}.bn2": width}
            if stage > 1 and block == 0:
                shapes[f"{name}.{skip}.0.weight"] = (width, before, 1, 1)
                norms[f"{name}.{skip}.1"] = width
            before = width
    head = "fc" if skip == "downsample" else "linear"
    shapes |= {f"{head}.weight": (5, before), f"{head}.bias": (5,)}
    tensors = {name: chance.normal(size=shape) for name, shape in shapes.items()}
    for name, width in norms.items():
        for part in ("weight", "bias", "running_mean"):
            tensors[f"{name}.{part}"] = chance.normal(size=width)
        tensors[f"{name}.running_var"] = chance.uniform(0.5, 2, width)
    half = {name: x.astype(np.float16) for name, x in tensors.items()}
    return half | {f"{name}.num_batches_tracked": np.array(7) for name in norms}


@pytest.mark.parametrize("skip", ["downsample", "shortcut"])
def test_resnet18_computes_what_it_computed_in_torch(tmp_path: Path, skip: str) -> None:
    tensors = resnet18_tensors(skip)
    prefix = "model." if skip == "shortcut" else ""
    path = tmp_path / "net.safetensors"
    save_file({f"{prefix}{name}": x for name, x in tensors.items()}, path)
    net = ob.nets.resnet18(5, width=WIDTH)
    images = np.random.default_rng(1).normal(size=(2, 8, 8, 3)).astype(np.float32)
    shapes = jax.eval_shape(lambda: net.init(jax.random.key(0), images))
    params = open_torch(path, "resnet18", shapes)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(params))
    there = jax.jit(lambda x: torch_resnet18(tensors, x, skip))
    expected = there(images.transpose(0, 3, 1, 2))
    assert np.allclose(jax.jit(net.apply)(params, images), expected, rtol=1e-4, atol=1e-3)


def optunet_tensors(seed: int) -> Tensors:
    chance = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        "conv1.weight": (2, 1, 4, 4),
        "conv2.weight": (10, 1, 5, 5),
        "fc.weight": (10, 10),
        "fc.bias": (10,),
    }
    return {name: chance.normal(size=s).astype(np.float16) for name, s in shapes.items()}


def torch_optunet(tensors: Tensors, x: Any) -> Any:
    x = jax.nn.relu(conv(x, tensors["conv1.weight"]))
    x = x[:, :, :24, :24].reshape(len(x), 2, 8, 3, 8, 3).max((3, 5))
    x = jax.nn.relu(conv(x, tensors["conv2.weight"], groups=2)).mean((2, 3))
    return x @ tensors["fc.weight"].astype(np.float32).T + tensors["fc.bias"]


OPTUNET = ob.nets.optunet()
LIKE = jax.eval_shape(lambda: OPTUNET.init(jax.random.key(0), jnp.ones((1, 28, 28, 1))))


def test_a_population_of_optunets_in_a_folder_and_in_a_file(tmp_path: Path) -> None:
    population = [optunet_tensors(seed) for seed in range(11)]
    for number, tensors in enumerate(population):
        save_file(tensors, tmp_path / f"optunet-{number}.safetensors")
    stacked = tmp_path / "all" / "stacked.safetensors"
    stacked.parent.mkdir()
    save_file({name: np.stack([x[name] for x in population]) for name in population[0]}, stacked)
    images = np.random.default_rng(2).uniform(size=(3, 28, 28, 1)).astype(np.float32)
    draws = open_torch(tmp_path, "optunet", LIKE)
    assert (len(draws), len(draws.modes)) == (11, 11)
    for number in (0, 9, 10):
        expected = torch_optunet(population[number], images.transpose(0, 3, 1, 2))
        assert np.allclose(OPTUNET.apply(draws[number], images), expected, rtol=1e-4, atol=1e-3)
    again = open_torch(stacked, "optunet", LIKE)
    assert all(map(np.array_equal, jax.tree.leaves(draws), jax.tree.leaves(again)))
    some = open_torch(stacked, "optunet", LIKE, draws=slice(9, None))
    few = open_torch(tmp_path, "optunet", LIKE, draws=slice(9, None))
    for part in (some, few):
        assert np.array_equal(
            part.params["Dense_0"]["kernel"], draws.params["Dense_0"]["kernel"][9:]
        )


def test_names_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    tensors = optunet_tensors(0)
    renamed = {"features.0.weight": tensors.pop("conv1.weight"), **tensors}
    save_file(renamed, path)
    with pytest.raises(CheckpointError, match=r"no tensor 'conv1\.weight' for the leaf 'Conv_0/k"):
        open_torch(path, "optunet", LIKE)
    for entry in ("features.0.weight", TorchTensor("features.0.weight", "conv")):
        mapping = {**torch_mapping("optunet"), "Conv_0/kernel": entry}
        params = open_torch(path, mapping, LIKE)
        assert params["Conv_0"]["kernel"].shape == (4, 4, 1, 2)


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    cases: list[tuple[Tensors, str]] = [
        ({"extra": np.ones(2)}, "has a tensor 'extra'"),
        ({"linear.bias": np.ones(10)}, r"several tensors 'fc\.bias' or 'linear\.bias'"),
        ({"fc.weight": np.ones((9, 10))}, r"'fc\.weight' of shape \(10, 9\) in our layout"),
        ({"conv1.weight": np.ones((2, 4, 4))}, r"'conv1\.weight' of shape \(2, 4, 4\)"),
    ]
    for change, said in cases:
        save_file(optunet_tensors(0) | change, path)
        with pytest.raises(CheckpointError, match=said):
            open_torch(path, "optunet", LIKE)
    path.write_bytes(b"no")
    with pytest.raises(CheckpointError, match="is not a safetensors file"):
        open_torch(path, "optunet", LIKE)
    with pytest.raises(CheckpointError, match="cannot be read"):
        open_torch(tmp_path / "none", "optunet", LIKE)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="has no safetensors files"):
        open_torch(tmp_path / "empty", "optunet", LIKE)
    with pytest.raises(CheckpointError, match="got the mapping 'vgg', expected one of 'optunet'"):
        open_torch(path, "vgg", LIKE)
    with pytest.raises(CheckpointError, match="no entry for the leaf 'Conv_1/kernel'"):
        open_torch(path, {"Conv_0/kernel": "a"}, LIKE)
    with pytest.raises(ValueError, match="got layout='transposed'"):
        TorchTensor("a", "transposed")
