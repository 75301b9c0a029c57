"""What `compact` refuses."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Collection, Mapping
from typing import Any

from onebasin.align.checks import check_inputs
from onebasin.compact.distilling import distil
from onebasin.compact.fitting import FORMS
from onebasin.posterior import Draws, Mixture

REFINEMENTS = (None, "distil")
# Of distil: those that compact gives it itself.
OWN_OPTIONS = {"apply_fn", "draws", "inputs", "starts", "key", "rank"}


def check_distilling(options: Mapping[str, Any], refine: str | None, own: Collection[str]) -> None:
    """Refuses options that nobody knows, and those of distilling where nothing is distilled.

    Args:
        options: What was given beside the options of `compact`.
        refine: Whether something is distilled.
        own: The options of `compact`.
    """
    known = set(inspect.signature(distil).parameters) - OWN_OPTIONS
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, [*known, *own])
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"compact has no option {name!r}{hint}")
        if refine is None:
            raise ValueError(
                f"got {name}= without refine='distil', which it is an option of: pass both, or "
                "neither"
            )


def check_request(
    draws: Any, apply_fn: Any, inputs: Any, covariance: str | None, refine: Any, mixture: bool
) -> None:
    """Refuses options that do not go together."""
    if isinstance(draws, Draws) and len(draws) < 2:
        raise ValueError("one draw has no spread: a compact posterior needs at least two")
    if refine not in REFINEMENTS:
        raise ValueError(f"got refine={refine!r}, expected None or 'distil'")
    if covariance is not None and covariance not in FORMS:
        raise ValueError(f"got covariance={covariance!r}, expected one of {', '.join(FORMS)}")
    if (apply_fn is None) != (inputs is None):
        missing = "inputs" if inputs is None else "apply_fn"
        raise ValueError(f"got no {missing}: pass the model and training inputs, or neither")
    if inputs is not None:
        check_inputs(inputs)
    if refine is not None and (apply_fn is None or isinstance(draws, Mixture)):
        raise ValueError("refine='distil' needs Draws, apply_fn= and inputs=")
    if mixture and isinstance(draws, Mixture):
        raise ValueError("the draws are a mixture already: mixture=True is for Draws")
