"""What `compact` refuses."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Collection, Mapping
from typing import Any

from onebasin.align.checks import check_inputs
from onebasin.align.match import DATA_COSTS
from onebasin.compact.distilling import distil
from onebasin.compact.fitting import FORMS, check_fit, check_modes
from onebasin.posterior import Draws, Mixture

REFINEMENTS = (None, "distil")
# Of distil: those that compact gives it itself.
OWN_OPTIONS = {"apply_fn", "draws", "inputs", "starts", "key", "rank"}


def check_distilling(
    options: Mapping[str, Any], refine: str | None, own: Collection[str], beside: Mapping[str, Any]
) -> None:
    """Refuses options that nobody knows, and those of distilling where nothing is distilled.

    Args:
        options: What was given beside the options of `compact`.
        refine: Whether something is distilled.
        own: The options of `compact`.
        beside: Those of them that belong to distilling; none or nothing if left out.
    """
    known = set(inspect.signature(distil).parameters) - OWN_OPTIONS
    for name in (*options, *(name for name, value in beside.items() if value)):
        if name not in known | set(beside):
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
    if mixture and isinstance(draws, Draws):
        check_modes(draws)


def check_used(
    draws: Draws | Mixture, seeing: bool, cost: str | None, given: Mapping[str, Any]
) -> None:
    """Refuses options that nothing would be done with.

    Args:
        draws: What is fitted.
        seeing: Whether there is a model and inputs.
        cost: What aligns.
        given: The options of the fit; None, or the default of one that has another, if left out.
    """
    named = {name for name, value in given.items() if value is not None}
    if isinstance(draws, Mixture):
        _refuse(
            named,
            "with a Mixture, whose components are aligned and whose mean and variances are taken "
            "as they are: leave out what belongs to fits of Draws",
        )
        if seeing and cost not in DATA_COSTS:
            _refuse(
                {"apply_fn", "inputs"},
                f"with a Mixture, which only costs on data need, such as cost={DATA_COSTS[2]!r}",
            )
        return
    if not seeing:
        _refuse(
            named & {"num_starts"},
            "without apply_fn= and inputs=, which choose between starts: pass both",
        )
    certain = given["covariance"] or (None if seeing else "diagonal")
    if certain == "diagonal":
        _refuse(
            named & {"rank", "shrinkage"},
            "for a diagonal covariance, which has no correlations: pass covariance='low-rank' or "
            "'unit-blocks'",
        )


def _refuse(names: Collection[str], why: str) -> None:
    if names:
        raise ValueError(f"got {', '.join(f'{name}=' for name in sorted(names))} {why}")


def check_fits(draws: Draws, mixture: bool, given: Mapping[str, Any]) -> None:
    """Refuses options that no fit of these draws, or of each of their modes, can take."""
    rank, temperature = given["rank"], given["temperature"]
    covariance = given["covariance"] or ("diagonal" if rank is None else "low-rank")
    for part in [draws.of_mode(mode) for mode in draws.modes] if mixture else [draws]:
        check_fit(
            part,
            covariance,
            rank,
            0.0 if given["shrinkage"] is None else given["shrinkage"],
            1.0 if temperature is None else temperature,
        )
