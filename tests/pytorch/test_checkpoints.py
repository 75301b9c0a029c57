"""A file is loaded as it is meant, or refused in one sentence that names the tensor."""

import contextlib
import random
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import onebasin as ob
from onebasin.torch import ConversionError
from onebasin.torch.files import read_tensors

FLIPS = 300


class Heads(nn.Module):
    """Two layers whose names differ in a prefix alone."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.ModuleDict({"head": nn.Linear(3, 3)})
        self.head = nn.Linear(3, 3)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3, bias=False)
        self.second = nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight


def saved(path: Path, state: Any) -> Path:
    save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
    return path


def layer() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, 3)


def same(params: Any, state: Any) -> bool:
    return set(params) == set(state) and all(np.array_equal(params[k], state[k]) for k in state)


WRAPS = ["", "module.", "model.", "net.", "_orig_mod.", "module._orig_mod.", "module.model."]


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("prefix", WRAPS)
def test_no_tensor_is_lost_where_names_differ_in_a_prefix(
    tmp_path: Path, prefix: str, suffix: str
) -> None:
    torch.manual_seed(0)
    module = Heads()
    state = {prefix + name: x for name, x in module.state_dict().items()}
    path = saved(tmp_path / f"net{suffix}", state)
    assert same(ob.torch.load_checkpoint(path, Heads()), module.state_dict())


def test_a_prefix_of_the_module_itself(tmp_path: Path) -> None:
    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = layer()

    inner = layer().state_dict()
    path = saved(tmp_path / "net.pt", inner)
    found = ob.torch.load_checkpoint(path, Wrapper())
    assert same(found, {f"net.{name}": x for name, x in inner.items()})
    wrapped = saved(tmp_path / "wrapped.pt", {f"module.net.{n}": x for n, x in inner.items()})
    assert same(ob.torch.load_checkpoint(wrapped, nn.DataParallel(layer())), inner)


def test_state_dicts_of_wrapped_modules() -> None:
    first, second = (nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)) for _ in range(2))
    symmetry = ob.discover(first, torch.ones(3, 4))
    moved = ob.align(symmetry, nn.DataParallel(second).state_dict(), to=first).params
    expected = ob.align(symmetry, second, to=first).params
    assert same(moved, {name: np.asarray(x) for name, x in expected.items()})


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["weight", "bias", "module.weight"], "has a tensor 'module.weight', and the module has"),
        (["module.weight", "bias", "net.weight"], "'module.weight' and 'net.weight', which may"),
    ],
)
def test_names_that_may_be_the_same(tmp_path: Path, names: list[str], sentence: str) -> None:
    own = layer().state_dict()
    state = {name: own[name.rpartition(".")[2]] for name in names}
    path = saved(tmp_path / "net.pt", state)
    with pytest.raises(ConversionError, match=sentence):
        ob.torch.load_checkpoint(path, layer())


class Twins(nn.Module):
    """Two layers of the same name below two prefixes."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.model = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        self.other = nn.Linear(3, 3, bias=False)


def test_one_tensor_for_two_entries(tmp_path: Path) -> None:
    x = torch.ones(3, 3)
    path = saved(tmp_path / "net.pt", {"weight": x, "other.weight": x})
    with pytest.raises(ConversionError, match=r"'weight', which may be 'net.weight' or 'model.wei"):
        ob.torch.load_checkpoint(path, Twins())


def test_tied_weights_are_one(tmp_path: Path) -> None:
    module = Tied()
    x = module.first.weight.detach()
    for state in ({"first.weight": x}, {"second.weight": x}, module.state_dict()):
        found = ob.torch.load_checkpoint(saved(tmp_path / "net.pt", state), Tied())
        assert same(found, {"first.weight": x})
    path = saved(tmp_path / "net.pt", {"first.weight": x, "second.weight": x + 1})
    with pytest.raises(ConversionError, match=r"other entries in 'second.weight' than in 'first"):
        ob.torch.load_checkpoint(path, Tied())


def bits(x: torch.Tensor) -> torch.Tensor:
    return x > 0


UNFIT: dict[str, tuple[Any, str]] = {
    "bool": (bits, "'weight' of type bool, and the module expects float32"),
    "integers": (torch.Tensor.int, "'weight' of type int32, and the module expects float32"),
    "double": (
        lambda x: torch.full(x.shape, 1e300, dtype=torch.float64),
        r"1e\+300 in the tensor 'weight' of type float64, which float32.*module.to\(torch.float64",
    ),
    "nan": (lambda x: x * float("nan"), "NaN or infinity in the tensor 'weight'"),
    "infinity": (lambda x: x / 0, "NaN or infinity in the tensor 'weight'"),
}


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("name", UNFIT)
def test_numbers_that_do_not_fit(tmp_path: Path, name: str, suffix: str) -> None:
    change, sentence = UNFIT[name]
    state = layer().state_dict()
    path = saved(tmp_path / f"net{suffix}", {**state, "weight": change(state["weight"])})
    with pytest.raises(ConversionError, match=sentence) as caught:
        ob.torch.load_checkpoint(path, layer())
    assert "\n" not in str(caught.value)


def test_types_that_fit(tmp_path: Path) -> None:
    state = {name: x.double() for name, x in layer().state_dict().items()}
    path = saved(tmp_path / "net.pt", state)
    found = ob.torch.load_checkpoint(path, layer())
    assert found["weight"].dtype == np.float32
    assert same(found, layer().state_dict())
    with pytest.raises(ConversionError, match="narrows to float32: switch on jax_enable_x64"):
        ob.torch.load_checkpoint(path, layer().double())
    with jax.enable_x64(True):
        assert same(ob.torch.load_checkpoint(path, layer().double()), state)


def test_infinity_that_the_module_has_too(tmp_path: Path) -> None:
    module = layer()
    module.register_buffer("mask", torch.tensor([0.0, -float("inf")]))
    path = saved(tmp_path / "net.pt", module.state_dict())
    assert same(ob.torch.load_checkpoint(path, module), module.state_dict())


KINDS: dict[str, tuple[Any, str]] = {
    "sparse": (torch.Tensor.to_sparse, "'weight' as a sparse tensor"),
    "meta": (lambda x: x.to("meta"), "'weight' as a meta tensor"),
    "complex": (lambda x: x + 1j, "complex tensors have no rules"),
}


@pytest.mark.parametrize("name", KINDS)
def test_tensors_without_plain_entries(tmp_path: Path, name: str) -> None:
    change, sentence = KINDS[name]
    state = layer().state_dict()
    path = saved(tmp_path / "net.pt", {**state, "weight": change(state["weight"])})
    for read in (read_tensors, lambda path: ob.torch.load_checkpoint(path, layer())):
        with pytest.raises(ConversionError, match=sentence):
            read(path)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.filterwarnings("ignore:.*TypedStorage is deprecated:UserWarning")
def test_quantised_tensors(tmp_path: Path) -> None:
    state = layer().state_dict()
    state["weight"] = torch.quantize_per_tensor(state["weight"], 0.1, 0, torch.qint8)
    with pytest.raises(ConversionError, match="'weight' as a quantised tensor"):
        ob.torch.load_checkpoint(saved(tmp_path / "net.pt", state), layer())


def test_keys_and_wrappers(tmp_path: Path) -> None:
    state = layer().state_dict()
    with pytest.raises(ConversionError, match="a tensor by the key 3, expected a name"):
        ob.torch.load_checkpoint(saved(tmp_path / "net.pt", {**state, 3: state["bias"]}), layer())
    both = saved(tmp_path / "net.pt", {"model": state, "state_dict": state})
    with pytest.raises(ConversionError, match="holds both 'state_dict' and 'model'"):
        ob.torch.load_checkpoint(both, layer())
    itself: dict[str, Any] = {}
    itself["model"] = itself
    with pytest.raises(ConversionError, match="something else than tensors"):
        ob.torch.load_checkpoint(saved(tmp_path / "net.pt", itself), layer())
    path = saved(tmp_path / "net.pt", {"model": {"state_dict": state}})
    assert same(ob.torch.load_checkpoint(path, layer()), state)


@contextlib.contextmanager
def at_most(most: int) -> Iterator[None]:
    """Whether the memory of this process stays below what it has and so much more."""
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    yield
    assert peak() - before < most


def peak() -> int:
    (found,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 1024 * int(found)


on_linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs /proc")


@on_linux
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_repeated_entries_take_no_memory(tmp_path: Path, dtype: torch.dtype) -> None:
    state = {**layer().state_dict(), "weight": torch.zeros(1, dtype=dtype).expand(2**29)}
    path = saved(tmp_path / "net.pt", state)
    assert path.stat().st_size < 4096
    like = {"w": np.ones((4, 3)), "b": np.ones(3)}
    with at_most(2**27):
        with pytest.raises(ConversionError, match=r"'weight' of shape \(536870912,\)"):
            ob.torch.load_checkpoint(path, layer())
        assert read_tensors(path)["weight"].shape == (2**29,)
        with pytest.raises(ob.store.CheckpointError, match="'weight' of shape"):
            ob.store.open_torch(path, {"w": "weight", "b": "bias"}, like)


@on_linux
def test_archives_that_unpack_to_more(tmp_path: Path) -> None:
    path = saved(tmp_path / "net.pt", layer().state_dict())
    with (
        zipfile.ZipFile(path) as old,
        zipfile.ZipFile(tmp_path / "more.pt", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
        new.writestr("net/data/9", bytes(2**24))
    before = peak()
    with pytest.raises(
        ConversionError, match=r"unpacks to 16,\d+,\d+, which torch.save never does"
    ):
        ob.torch.load_checkpoint(tmp_path / "more.pt", layer())
    assert peak() - before < 2**23


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_damaged_files_are_not_loaded(tmp_path: Path, suffix: str) -> None:
    """Files of torch.save have checksums; of safetensors the header is all that can be checked."""
    module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    good = saved(tmp_path / f"good{suffix}", module.state_dict())
    content = good.read_bytes()
    end = len(content) if suffix == ".pt" else 8 + int.from_bytes(content[:8], "little")
    dice = random.Random(0)
    path, refused = tmp_path / f"bad{suffix}", 0
    for _ in range(FLIPS):
        bad = bytearray(content)
        place = dice.randrange(end)
        bad[place] = dice.choice([bad[place] ^ 1 << dice.randrange(8), dice.randrange(256)])
        path.write_bytes(bad)
        try:
            found = ob.torch.load_checkpoint(path, module)
        except ConversionError:
            refused += 1
        else:
            assert same(found, module.state_dict()), f"byte {place}"
    assert refused > FLIPS / 2


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_files_that_are_cut_off(tmp_path: Path, suffix: str) -> None:
    content = saved(tmp_path / f"net{suffix}", layer().state_dict()).read_bytes()
    path = tmp_path / f"cut{suffix}"
    for end in range(0, len(content), 37):
        path.write_bytes(content[:end])
        with pytest.raises(ConversionError):
            ob.torch.load_checkpoint(path, layer())
