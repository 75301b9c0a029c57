"""Random programs over parameters: drawn while they run, from a seed and from shapes alone."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array
Op = Callable[["Run"], Array | None]

SIZES = (1, 2, 3, 4, 6)
LARGEST = 300
INPUTS = {"x": (2, 3), "i": (2,)}


class Run:
    """One run of a program: the values so far, the parameters asked for, the choices made."""

    def __init__(self, seed: int, params: dict[str, Array] | None, inputs: dict[str, Array]):
        self.rng = np.random.default_rng(seed)
        self.given = params
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.inputs = inputs
        self.dtype = inputs["x"].dtype
        self.values: list[Array] = [inputs["x"]]
        self.unread: set[int] = set()

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def choose(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def size(self) -> int:
        return self.choose(SIZES)

    def param(self, *shape: int, positive: bool = False) -> Array:
        """A parameter of that shape: one in four times one that is in use already."""
        prefix = "s" if positive else "p"
        known = [n for n, own in self.shapes.items() if own == shape and n.startswith(prefix)]
        if known and self.chance(0.25):
            name = self.choose(known)
        else:
            name = f"{prefix}{len(self.shapes)}"
            self.shapes[name] = shape
        return jnp.zeros(shape, self.dtype) if self.given is None else self.given[name]

    def value(self, min_rank: int = 0) -> Array | None:
        """A value made before, most likely a recent one; or a fresh parameter."""
        if self.chance(0.1):
            return self.param(*(self.size() for _ in range(min_rank + int(self.rng.integers(2)))))
        fitting = [n for n, v in enumerate(self.values) if v.ndim >= min_rank]
        if not fitting:
            return None
        number = fitting[-1 - min(int(self.rng.geometric(0.6)) - 1, len(fitting) - 1)]
        self.unread.discard(number)
        return self.values[number]

    def alike(self, shape: tuple[int, ...]) -> Array:
        """A second operand that broadcasts against a shape: a value, a parameter or a constant."""
        fitting = [n for n, v in enumerate(self.values) if v.shape == shape]
        kind = self.choose(("value", "value", "param", "row", "constant"))
        if kind == "value" and fitting:
            number = self.choose(fitting)
            self.unread.discard(number)
            return self.values[number]
        if kind == "constant":
            return self.constant(shape)
        if kind == "row":
            return self.param(*shape[int(self.rng.integers(len(shape) + 1)) :])
        return self.param(*(1 if self.chance(0.15) else n for n in shape))

    def constant(self, shape: tuple[int, ...]) -> Array:
        """Uniform, or varying along some axes."""
        number = self.choose((0.0, 1.0, -1.0, 0.5, 2.0))
        if self.chance(0.6):
            return jnp.full(shape, number, self.dtype)
        own = tuple(n if self.chance(0.5) else 1 for n in shape)
        varying = number + np.arange(math.prod(own)).reshape(own) / 4
        return jnp.broadcast_to(jnp.asarray(varying, self.dtype), shape)

    def axis(self, value: Array) -> int:
        return int(self.rng.integers(value.ndim))

    def keep(self, value: Array) -> None:
        self.values.append(value)
        self.unread.add(len(self.values) - 1)

    def step(self, ops: list[Op]) -> None:
        for _ in range(20):
            value = self.choose(ops)(self)
            if value is None or value.ndim > 4 or not 0 < value.size <= LARGEST:
                continue
            self.keep(value.astype(self.dtype))
            return

    def outputs(self) -> list[Array]:
        """Reads every value that nothing else has read."""
        return [self._read(self.values[n]) for n in sorted(self.unread)]

    def _read(self, value: Array) -> Array:
        kind = self.choose(("weigh", "weigh", "map", "flat", "reduce", "raw"))
        if kind == "weigh" or not value.ndim:
            return jnp.sum(value * self.param(*value.shape))
        if kind == "map":
            return value @ self.param(value.shape[-1], 2)
        if kind == "flat":
            return value.reshape(-1) @ self.param(value.size, 2)
        if kind == "reduce":
            return self.choose((jnp.sum, jnp.mean, jnp.max))(value, axis=self.axis(value))
        return value


class Program:
    """A random function of parameters and inputs, with the shapes of its parameters."""

    def __init__(self, seed: int, steps: int, ops: list[Op]):
        self.seed, self.steps, self.ops = seed, steps, ops
        shapes: dict[str, tuple[int, ...]] = {}

        def first(inputs: dict[str, Array]) -> list[Array]:
            run = self._run(None, inputs)
            shapes.update(run.shapes)
            return run.outputs_made

        jax.eval_shape(
            first,
            {
                "x": jax.ShapeDtypeStruct(INPUTS["x"], jnp.float32),
                "i": jax.ShapeDtypeStruct(INPUTS["i"], jnp.int32),
            },
        )
        self.shapes = shapes

    def _run(self, params: Any, inputs: dict[str, Array]) -> Any:
        run: Any = Run(self.seed, params, inputs)
        for _ in range(self.steps):
            run.step(self.ops)
        run.outputs_made = run.outputs()
        return run

    def __call__(self, params: dict[str, Array], inputs: dict[str, Array]) -> list[Array]:
        return self._run(params, inputs).outputs_made

    def params(self, seed: int, dtype: Any = np.float32) -> dict[str, np.ndarray]:
        """Parameters in general position: normal, or positive where the program needs it."""
        rng = np.random.default_rng(seed)
        found = {}
        for name, shape in self.shapes.items():
            normal = rng.normal(size=shape)
            values = np.exp(0.5 * normal) if name.startswith("s") else 0.7 * normal
            found[name] = np.asarray(values, dtype)
        return found

    def inputs(self, seed: int, dtype: Any = np.float32) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(seed)
        return {
            "x": rng.normal(size=INPUTS["x"]).astype(dtype),
            "i": rng.integers(0, 2, INPUTS["i"]).astype(np.int32),
        }
