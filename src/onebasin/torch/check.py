"""The proof of a conversion: the module and its JAX function agree, in doubles where they can."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from onebasin.torch.errors import ConversionError
from onebasin.torch.export import line_of, plain_paths
from onebasin.torch.interpreter import Interpreter
from onebasin.torch.modules import Call
from onebasin.torch.state import owners
from onebasin.torch.tensors import is_float, pytorch, to_numpy, to_tensor

# Weights beyond which a comparison in double precision takes too long.
LARGE = 30_000_000
# Weights beyond which a tensor is not all zeros or ones, and need not be moved.
WIDE = 100_000
# Relative to the largest output.
TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 0.02, "bfloat16": 0.15}


def check(module: Any, call: Call, interpreter: Interpreter, seed: int = 0) -> float:
    """Compares a module with its JAX function on example and random inputs.

    Parameters are moved a little at random (a bias that starts at zero hides errors). A module
    that asks for single precision somewhere inside is compared in its own.

    Args:
        module: The module.
        call: The example inputs.
        interpreter: The JAX function.
        seed: Seed of all random numbers.

    Returns:
        The largest difference relative to the largest output.

    Raises:
        ConversionError: If it is beyond the tolerance.
    """
    own = str(interpreter.exported.dtype).removeprefix("torch.")
    found, failure = "", None
    large = sum(x.numel() for x in module.parameters()) > LARGE
    # In doubles first, but for modules that are so large that one would have to wait.
    precisions = dict.fromkeys((own,) if large else ("float64", own))
    options = itertools.product(precisions, _options(call, interpreter, seed, large))
    for precision, cases in options:
        try:
            params, expected = _reference(module, call, cases, precision, seed)
        except Exception as error:
            failure = failure or error
            continue
        run = _compiled(interpreter, params, cases[0], precision)
        difference = max(
            compare(run(leaves), outputs) for leaves, outputs in zip(cases, expected, strict=True)
        )
        if difference <= TOLERANCES[precision]:
            return difference
        found = f"{difference:.1e} of the largest output in {precision}"
        if not _names_type(interpreter):
            break
    if not found:
        raise ConversionError(
            f"the module raised {line_of(failure)} when it was run for comparison: check that it "
            "runs on the example inputs"
        ) from failure
    raise ConversionError(
        f"the converted function differs from the module by {found}: mend the rules that were "
        "given with onebasin.torch.register, if any, or report the module"
    )


def _reference(
    module: Any, call: Call, cases: list[list[Any]], precision: str, seed: int
) -> tuple[dict[str, Any], list[list[np.ndarray]]]:
    """Parameters near the module's, at which it is finite if it can be, and its outputs there."""
    for noise in (0.1, 0.0):
        params = _params(module, precision, noise, seed)
        expected = [_torch(module, call, params, leaves, precision) for leaves in cases]
        if all(np.isfinite(x).all() for x in expected[0]):
            break
    return params, expected


def _names_type(interpreter: Interpreter) -> bool:
    """Whether a graph asks somewhere for the type in which the module computes."""
    own = interpreter.exported.dtype
    return any(
        argument == own
        for node in interpreter.exported.module.graph.nodes
        for argument in (*node.args, *node.kwargs.values())
        if isinstance(argument, type(own))
    )


def compare(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The largest difference relative to the largest entry; shapes and infinities must agree."""
    if len(found) != len(expected):
        return float("inf")
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return float("inf")
        if not np.array_equal(np.isnan(a), np.isnan(b)):
            return float("inf")
        finite = np.isfinite(b)
        a, b = a[finite].astype(np.float64), b[finite].astype(np.float64)
        if a.size:
            scale = max(float(np.abs(b).max()), 1e-30)
            worst = max(worst, float(np.abs(a - b).max()) / scale)
    return worst


def _options(call: Call, interpreter: Interpreter, seed: int, large: bool) -> list[list[list[Any]]]:
    """The example and random numbers: as two rows where the batch is free, or one by one."""
    rng = np.random.default_rng(seed)
    arrays = [to_numpy(x) if d else x for x, d in zip(call.example, call.is_data, strict=True)]
    free = interpreter.exported.free
    rows = [_rows(x, rng, large) if number in free else x for number, x in enumerate(arrays)]
    others = [_random(x, rng) if isinstance(x, np.ndarray) else x for x in arrays]
    return [[rows], [arrays, others]] if free else [[arrays, others]]


def _rows(x: np.ndarray, rng: np.random.Generator, large: bool) -> np.ndarray:
    """One example and one of random numbers; for large modules their sum, as one row."""
    first, other = x[:1], _random(x[:1], rng)
    if large and is_float(x.dtype):
        return first + other
    return np.concatenate([first, other])


def _random(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Numbers of the same kind: normal ones, or entries of the example in another order."""
    if is_float(array.dtype):
        return rng.standard_normal(array.shape).astype(array.dtype)
    return rng.permutation(array.reshape(-1)).reshape(array.shape)


def _params(module: Any, precision: str, noise: float, seed: int) -> dict[str, Any]:
    """All tensors of the module by name in another precision, moved where they are trained."""
    torch = pytorch()
    rng = torch.Generator().manual_seed(seed)
    dtype = getattr(torch, precision)
    owner = owners(module)
    moved: dict[str, Any] = {}
    tensors = dict(module.named_parameters(remove_duplicate=False))
    tensors |= dict(module.named_buffers(remove_duplicate=False))
    for name, tensor in tensors.items():
        first = owner.get(name, name)
        if first in moved:
            moved[name] = moved[first]
            continue
        x = tensor.detach()
        if x.is_floating_point():
            x = x.to(dtype)
            movable = noise and name in owner and 0 < x.numel() <= WIDE
            if movable and torch.isfinite(x).all():
                x = _jittered(x, noise, rng)
        moved[name] = x
    return moved


def _jittered(x: Any, noise: float, rng: Any) -> Any:
    """Keeps the sign of what is positive (variances), moves all else."""
    torch = pytorch()
    normal = torch.randn(x.shape, generator=rng, dtype=torch.float32).to(x.dtype)
    low, high = float(x.min()), float(x.max())
    if low == high == 0:
        return noise * normal
    if low >= 0 or high <= 0:
        return x * torch.exp(noise * normal)
    return x + noise * x.abs().mean() * normal


def _torch(
    module: Any, call: Call, params: dict[str, Any], leaves: list[Any], precision: str
) -> list[np.ndarray]:
    from torch.utils import _pytree

    torch = pytorch()
    dtype = getattr(torch, precision)
    tensors = [
        _cast(to_tensor(x), dtype) if data else x
        for x, data in zip(leaves, call.is_data, strict=True)
    ]
    args, kwargs = call.arguments(tensors)
    with plain_paths(), _default(dtype), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outputs = torch.func.functional_call(module, params, args, kwargs)
    found = [x for x in _pytree.tree_flatten(outputs)[0] if isinstance(x, torch.Tensor)]
    return [_wide(to_numpy(x)) for x in found]


def _compiled(
    interpreter: Interpreter, params: dict[str, Any], example: list[Any], precision: str
) -> Callable[[list[Any]], list[np.ndarray]]:
    """The JAX function of leaves, all of one shape."""
    from torch.utils import _pytree

    names = set(interpreter.exported.params.values())
    arrays = {name: to_numpy(params[name], copy=False) for name in names}
    double = precision == "float64"
    is_data = [isinstance(x, np.ndarray) for x in example]

    def run(arrays: Any, data: list[Any]) -> list[Any]:
        given = iter(data)
        leaves = [
            next(given) if is_array else x for x, is_array in zip(example, is_data, strict=True)
        ]
        # Not JAX's order, which is that of the keys of a dictionary.
        found = _pytree.tree_flatten(interpreter(arrays, leaves))[0]
        return [x for x in found if hasattr(x, "dtype")]

    # Run once or twice: time spent on optimising code would not come back.
    options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    compiled = jax.jit(run, compiler_options=options)

    def outputs(leaves: list[Any]) -> list[np.ndarray]:
        data = [x for x in leaves if isinstance(x, np.ndarray)]
        data = [x.astype(np.float64) if double and is_float(x.dtype) else x for x in data]
        with jax.enable_x64(double), _on_cpu():
            return [_wide(np.asarray(x)) for x in compiled(arrays, data)]

    return outputs


def _on_cpu() -> Any:
    """Where PyTorch computes too, unless JAX was started without."""
    try:
        return jax.default_device(jax.devices("cpu")[0])
    except RuntimeError:
        return contextlib.nullcontext()


def _cast(tensor: Any, dtype: Any) -> Any:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype != np.float64 else array


@contextlib.contextmanager
def _default(dtype: Any) -> Iterator[None]:
    """What torch makes tensors of where a module does not say."""
    torch = pytorch()
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
