"""What every method is given first, a random key and a problem; and rates."""

from __future__ import annotations

import math
from typing import Any

from onebasin.infer.problem import Problem
from onebasin.symmetry.keys import check_key, described


def check_key_and_problem(key: Any, problem: Any) -> None:
    """Raises unless a method's first two arguments are what they must be."""
    check_key(key)
    if not isinstance(problem, Problem):
        raise TypeError(
            f"the problem is {described(problem)}, expected an onebasin.Problem: write "
            "onebasin.Problem(net, (inputs, targets)), which joins a network and its data"
        )


def check_whole_data(method: str, problem: Problem) -> None:
    """Raises where a method looks at all data as they are and the problem augments them."""
    if problem.augment is not None:
        raise ValueError(
            f"{method} looks at all data at every step, as they are, and the problem has augment=: "
            "leave that out, or take a method of minibatches (sghmc, sgld, ensemble, mean_field, "
            "swag, laplace, dropout)"
        )


def check_rates(**rates: float | None) -> None:
    """Raises unless every step, length or rate that is given is a positive number."""
    for name, rate in rates.items():
        if rate is not None and not 0 < rate < math.inf:
            raise ValueError(f"got {name}={rate}, expected a positive number")
