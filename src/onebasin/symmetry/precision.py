"""How finely the steps of a model round."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.symmetry.program import Equation

# Those of bfloat16 and of float16.
LEAST_MANTISSA, LEAST_EXPONENT = 7, 5


class Precision(NamedTuple):
    """The bits of a floating format."""

    mantissa: int
    exponent: int
    signed: bool = True

    @classmethod
    def of(cls, dtype: Any) -> Precision | None:
        """That of an array's type; None unless it is floating point."""
        if not jax.dtypes.issubdtype(dtype, np.floating):
            return None
        info: Any = jnp.finfo(dtype)
        return cls(int(info.nmant), int(info.nexp), float(info.min) < 0)

    def least(self, other: Precision) -> Precision:
        """What is left of both, one after the other."""
        return Precision(
            min(self.mantissa, other.mantissa),
            min(self.exponent, other.exponent),
            self.signed and other.signed,
        )

    @property
    def coarse(self) -> bool:
        """Whether rounding to it changes what a rescaled network gives by several per cent."""
        return self.mantissa < LEAST_MANTISSA or self.exponent < LEAST_EXPONENT

    @property
    def log_range(self) -> float:
        """How far down the format goes from 1, as a logarithm, before it loses bits."""
        return (2.0 ** (self.exponent - 1) - 2) * float(np.log(2))


DOUBLE = Precision(52, 11)


def rounds_to(equation: Equation, output: int = 0) -> Precision | None:
    """The format of what a step gives; None unless it is floating point."""
    given = Precision.of(equation.outputs[output].aval.dtype)
    if given is None or equation.name != "reduce_precision":
        return given
    bits = equation.params["mantissa_bits"], equation.params["exponent_bits"]
    return given.least(Precision(*bits))
