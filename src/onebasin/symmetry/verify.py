"""The proof: f(x) = f(g.x) on random elements, random parameters, in double precision."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from onebasin.symmetry.elements import Element, act_on_leaf
from onebasin.symmetry.errors import SymmetryError
from onebasin.symmetry.examples import doubled, two_examples
from onebasin.symmetry.group import Factor, Symmetry
from onebasin.symmetry.program import Program, calls_host, depends_on, evaluate, trace

TOLERANCES = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-4, np.dtype(np.float16): 0.02}
TOLERANCE_BRAIN = 0.15
POWER_ELEMENTS = 4
# A factor of 3,000: beyond the clips and below the thresholds and epsilons that models have.
FARTHEST = 8.0
ALIGNMENT = 64


def check_symmetry(
    symmetry: Symmetry,
    apply_fn: Callable[[Any, Any], Any],
    params: Any,
    inputs: Any,
    *,
    tolerance: float | None = None,
    num_elements: int = 2,
    seed: int = 0,
    power: bool = True,
) -> float:
    """Proves a group on a model: the largest relative change of the output over random elements.

    Parameters are randomised first (a bias or head that starts at zero hides errors) and the model
    runs in double precision where it lets itself, else in its own. Beside the random elements there
    are two with large scales, one way and the other, which a clip or an epsilon does not survive.

    Args:
        symmetry: The group to be checked.
        apply_fn: The model, `apply_fn(params, inputs) -> outputs`.
        params: Its parameters; their values only set the scale of the random ones.
        inputs: Arrays, or shapes for random inputs.
        tolerance: Largest relative change allowed; by default 1e-9 in double precision, 1e-4 in
            single, and more where the model itself rounds to half.
        num_elements: Number of random elements.
        seed: Seed of all random numbers.
        power: Also show that the check can fail: leave out each site of each factor in turn and see
            that the output changes.

    Returns:
        The largest change relative to the largest output.

    Raises:
        SymmetryError: If an element changes the output, naming the factor and the parameter; if an
            omission goes unnoticed; if the output is not finite or not reproducible.
    """
    model = _Model(symmetry, apply_fn, params, inputs, seed)
    limit = tolerance if tolerance is not None else model.tolerance
    largest = _prove(model, limit, num_elements)
    if power and symmetry.factors:
        _prove_power(model, limit)
    return max(largest, _prove_far(model, limit))


def check_discovered(
    symmetry: Symmetry,
    program: Program,
    apply_fn: Callable[[Any, Any], Any],
    params: Any,
    inputs: Any,
) -> None:
    """The proof of a group that was just read off a program, at no more cost than it needs.

    For a model that looks at its examples one by one, two of them are enough; any other model is
    proved on all.

    Args:
        symmetry: The group.
        program: What it was read off: the model on these inputs.
        apply_fn: The model.
        params: Its parameters.
        inputs: Arrays, or shapes for random inputs.
    """
    few = two_examples(program, apply_fn, params, inputs)
    if few is not None and _holds_on_two(symmetry, apply_fn, params, few):
        return
    model = _Model(symmetry, apply_fn, params, inputs, 0)
    _prove(model, model.tolerance, 1)


def _holds_on_two(
    symmetry: Symmetry, apply_fn: Callable[..., Any], params: Any, inputs: Any
) -> bool:
    """Whether a random element leaves the outputs of two examples alone, each by itself.

    Of a model that is not finite on two, or lets them mix, this says nothing.
    """
    try:
        model = _Model(symmetry, apply_fn, params, inputs, 0)
    except SymmetryError:
        return False
    model.look_at_one()
    return model.walk(_random_element(symmetry, model.rng, None)) <= model.tolerance


def _prove(model: _Model, limit: float, num_elements: int) -> float:
    """Walks along random elements; the largest change on the way."""
    largest = 0.0
    element: Element | None = None
    for _ in range(num_elements):
        element = _random_element(model.symmetry, model.rng, element)
        change = model.walk(element)
        if not change <= limit:
            raise SymmetryError(_blame(model.afresh(), element, change, limit))
        largest = max(largest, change)
    return largest


def _prove_far(model: _Model, limit: float) -> float:
    """Large scales, both ways: there clips and thresholds are met that small ones leave aside.

    Where the model is no longer finite that far out, nothing is said.
    """
    far = _far_element(model)
    largest = 0.0
    # The second step goes back through the start and as far again.
    for step, reached in ((1.0, 1.0), (-2.0, -1.0)) if far.log_scales else ():
        change = model.walk(_times(far, step))
        if limit < change < np.inf:
            raise SymmetryError(_blame(model.afresh(), _times(far, reached), change, limit))
        largest = max(largest, change if change < np.inf else 0.0)
    return largest


class _Model:
    """The model on randomised parameters, compiled once."""

    def __init__(
        self, symmetry: Symmetry, apply_fn: Callable[..., Any], params: Any, inputs: Any, seed: int
    ):
        # Before anything has moved: what moves is not kept twice.
        self.afresh = functools.partial(_Model, symmetry, apply_fn, params, inputs, seed)
        self.symmetry = symmetry
        self.rng = np.random.default_rng(seed)
        leaves, _ = symmetry.flatten(params)
        program, narrowest = _program(apply_fn, params, inputs)
        self.double = narrowest == np.float64
        self.tolerance = TOLERANCES.get(narrowest, TOLERANCE_BRAIN)
        # Values are products of a few parameters: these keep to a part of what the type can hold.
        self.room = -float(np.log(float(jax.numpy.finfo(narrowest).tiny))) / 7
        self.inputs = [self._example(x) for x in jax.tree.leaves(inputs)]
        # Run once or twice: time spent on optimising code would not come back.
        generators = [_implementation(x) for x in (*leaves, *jax.tree.leaves(inputs))]

        def run(*arguments: Any) -> list[Any]:
            whole = [
                x if impl is None else jax.random.wrap_key_data(x, impl=impl)
                for x, impl in zip(arguments, generators, strict=True)
            ]
            return evaluate(program, whole, program.outputs)

        self._run = jax.jit(
            run,
            compiler_options={
                "xla_backend_optimization_level": 0,
                "xla_llvm_disable_expensive_passes": True,
            },
        )
        effects = calls_host(program)
        pool = self.rng.standard_normal(1_000_003)
        for noise in (0.3, 0.03, 0.0):
            self.leaves = [_settled(self._randomise(leaf, noise, pool)) for leaf in leaves]
            self.reference = self.outputs(self.leaves)
            if all(np.all(np.isfinite(x)) for x in self.reference):
                break
        else:
            raise SymmetryError(
                "the model's output holds NaN or infinity at the check, so nothing can be proved; "
                "pass parameters and inputs on which it is finite"
            )
        if not effects:
            return
        again = self.outputs(self.leaves)
        if not all(np.array_equal(a, b) for a, b in zip(self.reference, again, strict=True)):
            raise SymmetryError(
                "the model gives different outputs on the same parameters and inputs: it draws "
                "random numbers inside; fix its random key (or switch dropout off) and try again"
            )

    def _precision(self, dtype: Any) -> Any:
        return _widest(dtype) if self.double else dtype

    def _example(self, x: Any) -> Any:
        dtype = x.dtype if hasattr(x, "dtype") else np.result_type(x)
        if not isinstance(x, jax.ShapeDtypeStruct):
            if jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
                return _plain(x)
            return np.asarray(x, self._precision(dtype))
        if jax.dtypes.issubdtype(dtype, np.floating):
            return self.rng.standard_normal(x.shape).astype(self._precision(dtype))
        return self.rng.integers(0, 2, x.shape).astype(dtype)

    def _randomise(self, leaf: Any, noise: float, pool: np.ndarray) -> Any:
        """Keeps the scale and the sign of leaves that are positive (variances), moves all else."""
        if not jax.dtypes.issubdtype(leaf.dtype, np.inexact):
            return np.zeros(leaf.shape, leaf.dtype) if _is_shape(leaf) else _plain(leaf)
        size = int(np.prod(leaf.shape))
        start = int(self.rng.integers(len(pool) // 2))
        normal = _repeated(pool[start:], size).reshape(leaf.shape)
        dtype = self._precision(leaf.dtype)
        if _is_shape(leaf):
            fan = int(np.prod(leaf.shape[:-1]))
            normal *= 0.3 if len(leaf.shape) < 2 else 1 / np.sqrt(max(fan, 1))
            value = np.exp(normal) if len(leaf.shape) < 2 else normal
            return value.astype(dtype, copy=False)
        value = np.asarray(leaf)
        if not value.size:
            return value.astype(dtype)
        low, high = value.min(), value.max()
        if low == high == 0:
            value = noise * normal
        elif low >= 0 or high <= 0:
            value = value * np.exp(noise * normal)
        else:
            scale = float(np.abs(value.ravel()[:: value.size // 1000 + 1]).mean())
            value = value + (0.3 * noise * scale) * normal
        return value.astype(dtype, copy=False)

    def outputs(self, leaves: Sequence[Any]) -> list[np.ndarray]:
        with jax.enable_x64(self.double):
            return [np.asarray(x) for x in self._run(*leaves, *self.inputs)]

    def look_at_one(self) -> None:
        """Twice the second example instead of two, expecting of both what it gave beside the first.

        Whatever lets examples mix, or treats them differently, shows as a change.
        """
        self.inputs, self.reference = doubled(self.inputs), doubled(self.reference)

    def walk(self, element: Element) -> float:
        """Moves the parameters in place: a second copy of them would cost more than the run."""
        for array, leaf in zip(self.leaves, self.symmetry.leaves, strict=True):
            moved = act_on_leaf(self.symmetry, element, array, leaf.blocks, np)
            if moved is not array:
                array[...] = moved
        return self.difference(self.leaves)

    def change(self, element: Element) -> float:
        return self.difference(self.symmetry.act_on_leaves(element, self.leaves, np))

    def difference(self, leaves: Sequence[Any]) -> float:
        """Largest change relative to the largest entry, over all outputs; NaN is infinite."""
        largest = 0.0
        for a, b in zip(self.reference, self.outputs(leaves), strict=True):
            if not a.size:
                continue
            if not np.all(np.isfinite(b)):
                return float("inf")
            # NumPy alone does not take bfloat16 for a number.
            if not jax.dtypes.issubdtype(a.dtype, np.inexact):
                largest = max(largest, float(np.any(a != b)))
                continue
            scale = float(np.max(np.abs(a))) or 1.0
            largest = max(largest, float(np.max(np.abs(a - b))) / scale)
        return largest


def _repeated(values: np.ndarray, size: int) -> np.ndarray:
    """The values over and over, each written once: these arrays are as large as the model."""
    whole = np.empty(size, values.dtype)
    for start in range(0, size, len(values)):
        part = whole[start : start + len(values)]
        part[:] = values[: len(part)]
    return whole


def _settled(value: Any) -> Any:
    """The values at an address that the compiled model reads where they are, instead of copying."""
    if not isinstance(value, np.ndarray | np.generic):
        return value
    value = np.asarray(value)
    room = np.empty(value.nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    settled = room[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    settled[...] = value
    return settled


def _is_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def _plain(leaf: Any) -> Any:
    """Random keys as their bits: the same key may then be used again."""
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(leaf))
    return leaf


def _implementation(leaf: Any) -> Any:
    """Which generator a random key belongs to; None for all other leaves."""
    dtype = getattr(leaf, "dtype", None)
    is_key = dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)
    return jax.random.key_impl(leaf) if is_key and not _is_shape(leaf) else None


def _random_element(
    symmetry: Symmetry, rng: np.random.Generator, previous: Element | None
) -> Element:
    """Like `Symmetry.random`, in NumPy: nothing to compile for models with many factors.

    No permutation is the identity, and a sign that was not flipped last time is flipped now, so
    that small factors are put to the test too.
    """
    identity = symmetry.identity(np)

    def permute(plain: np.ndarray) -> np.ndarray:
        drawn = rng.permuted(plain, axis=-1)
        same = np.all(drawn == plain, axis=-1, keepdims=True)
        return np.where(same, np.roll(plain, 1, axis=-1), drawn)

    def flip(name: str, plain: np.ndarray) -> np.ndarray:
        if previous is not None:
            return -previous.signs[name]
        if plain.shape[-2:-1] in ((), (1,)):
            return -plain
        return rng.choice(np.array([-1, 1], plain.dtype), plain.shape)

    return Element(
        {k: permute(v) for k, v in identity.permutations.items()},
        {k: 0.5 * rng.standard_normal(v.shape) for k, v in identity.log_scales.items()},
        {k: flip(k, v) for k, v in identity.signs.items()},
    )


def _far_element(model: _Model) -> Element:
    """An element of scales alone, as large as the parameters can take in the model's precision."""
    symmetry = model.symmetry
    degree = max(
        (sum(abs(w.exponent) for w in b.scalings) for leaf in symmetry.leaves for b in leaf.blocks),
        default=0.0,
    )
    most = min(FARTHEST, model.room / max(degree, 1.0))

    def draw(plain: np.ndarray) -> np.ndarray:
        size = model.rng.uniform(0.75 * most, most, plain.shape)
        return size * model.rng.choice([-1, 1], plain.shape)

    identity = symmetry.identity(np)
    return identity._replace(log_scales={k: draw(v) for k, v in identity.log_scales.items()})


def _times(element: Element, times: float) -> Element:
    """An element of scales alone, some times over."""
    scales = {name: times * values for name, values in element.log_scales.items()}
    return element._replace(log_scales=scales)


def _program(apply_fn: Callable[..., Any], params: Any, inputs: Any) -> tuple[Program, Any]:
    """The model as it runs on doubles, or as it is, and the least precise type it computes in."""

    def as_double(x: Any) -> Any:
        dtype = x.dtype if hasattr(x, "dtype") else np.result_type(x)
        return jax.ShapeDtypeStruct(np.shape(x), _widest(dtype))

    try:
        with jax.enable_x64(True):
            program = trace(
                apply_fn, jax.tree.map(as_double, params), jax.tree.map(as_double, inputs)
            )
            if _narrowest(program, params) == np.float64:
                return program, np.dtype(np.float64)
    except Exception:
        pass
    program = trace(apply_fn, params, inputs)
    return program, _narrowest(program, params)


def _widest(dtype: Any) -> Any:
    """The most precise type of a kind."""
    if jax.dtypes.issubdtype(dtype, np.complexfloating):
        return np.complex128
    return np.float64 if jax.dtypes.issubdtype(dtype, np.floating) else dtype


def _narrowest(program: Program, params: Any) -> Any:
    """The least precise floating type of all values that parameters go into."""
    reached = depends_on(program, program.inputs[: len(jax.tree.leaves(params))])
    dtypes = {
        np.dtype(v.aval.dtype)
        for equation in program.equations
        for v in equation.outputs
        if id(v) in reached and jax.dtypes.issubdtype(v.aval.dtype, np.floating)
    }
    return max(dtypes, key=lambda dtype: float(jax.numpy.finfo(dtype).eps), default=np.dtype(float))


def _only(symmetry: Symmetry, element: Element, factor: Factor) -> Element:
    """The part of an element that belongs to one factor."""
    identity = symmetry.identity(np)
    name = factor.name
    return Element(
        *(
            {k: (mine if k == name else plain[k]) for k, mine in own.items()}
            for own, plain in zip(element, identity, strict=True)
        )
    )


def _moved(model: _Model, element: Element, left_out: str | None = None) -> list[Any]:
    moved = model.symmetry.act_on_leaves(element, model.leaves, np)
    return [
        old if leaf.path == left_out else new
        for leaf, old, new in zip(model.symmetry.leaves, model.leaves, moved, strict=True)
    ]


def _blame(model: _Model, element: Element, change: float, limit: float) -> str:
    """Which factor breaks the model, and at which parameter."""
    symmetry = model.symmetry
    message = f"the group does not hold: the output changes by {change:.2g} (allowed {limit:.0e})"
    worst = max(
        symmetry.factors,
        key=lambda f: np.nan_to_num(model.change(_only(symmetry, element, f)), nan=np.inf),
        default=None,
    )
    if worst is None:
        return message
    alone = _only(symmetry, element, worst)
    paths = dict.fromkeys(site.path for site in worst.sites)
    culprit = min(paths, key=lambda path: model.difference(_moved(model, alone, path)))
    return f"{message}; factor {worst.name!r} breaks it, most likely at parameter {culprit!r}"


def _prove_power(model: _Model, limit: float) -> None:
    """Leaves out each site of each factor; a dead unit may hide one element, hardly several."""
    symmetry = model.symmetry
    drawn = [_random_element(symmetry, model.rng, None) for _ in range(POWER_ELEMENTS)]
    places = {leaf.path: number for number, leaf in enumerate(symmetry.leaves)}
    for factor in symmetry.factors:
        for path in dict.fromkeys(site.path for site in factor.sites):
            if not any(_noticed(model, e, factor, path, places[path], limit) for e in drawn):
                raise SymmetryError(
                    f"the check has no power: factor {factor.name!r} acts on parameter {path!r}, "
                    "but leaving that out goes unnoticed"
                )


def _noticed(
    model: _Model, element: Element, factor: Factor, path: str, place: int, limit: float
) -> bool:
    """Whether leaving one parameter out shows; or whether moving it alone would not show either."""
    alone = _only(model.symmetry, element, factor)
    if model.difference(_moved(model, alone, path)) > limit:
        return True
    moved = model.symmetry.act_on_leaves(alone, model.leaves, np)
    probe = list(model.leaves)
    probe[place] = moved[place]
    return bool(model.difference(probe) <= limit)
