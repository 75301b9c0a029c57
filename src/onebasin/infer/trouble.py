"""What is wrong with draws that look like draws: said once a call, and counted in `statistics`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from onebasin.posterior import Draws

# Draws are not to be trusted where more trajectories diverge, as a share of all and either in
# number or, where there are few draws, as a share of them.
SHARE, MANY, MUCH = 0.05, 10, 0.25
LIMITS = {
    "max_leapfrogs": "raise it, or take a larger step_size, a lower target_acceptance or a shorter "
    "trajectory_length",
    "max_doublings": "raise it, or take a larger step_size or a lower target_acceptance",
}


class SamplingWarning(UserWarning):
    """Draws were made and may not be what was asked for; the message says how many and why."""


def warn_of_trouble(found: Any, arguments: dict[str, Any], stacklevel: int = 3) -> None:
    """Says where trajectories diverged, and where they were ended before their time.

    Args:
        found: What a method returned.
        arguments: What it was called with.
        stacklevel: Whose line the warning shows.
    """
    if not isinstance(found, Draws):
        return
    for told in (_divergences(found), _shortened(found, arguments), _smaller(found)):
        if told:
            warnings.warn(told, SamplingWarning, stacklevel=stacklevel)


def _divergences(draws: Draws) -> str | None:
    divergent = np.asarray((draws.statistics or {}).get("divergent", False), bool)
    number, count = int(divergent.sum()), len(draws)
    if number <= SHARE * count or number < min(MANY, MUCH * count):
        return None
    chains = ", ".join(map(str, np.unique(np.asarray(draws.mode)[divergent])))
    return (
        f"{number} of {count} draws end trajectories that diverged (chains {chains}): take a "
        "smaller step_size, a higher target_acceptance, or more warm-up"
    )


def _shortened(draws: Draws, arguments: dict[str, Any]) -> str | None:
    number = int(np.sum((draws.statistics or {}).get("shortened", 0)))
    limit = next((name for name in LIMITS if name in arguments), None)
    if not number or limit is None:
        return None
    info = draws.info or {}
    length, asked = info.get("trajectory_length"), info.get("asked_trajectory_length")
    share = ""
    # Of several chunks it is a list.
    if isinstance(length, int | float) and isinstance(asked, int | float):
        share = f" (at {length / asked:.0%} of the length)"
    return (
        f"{number} of {len(draws)} draws end trajectories that {limit}={arguments[limit]} cut "
        f"short{share}: {LIMITS[limit]}"
    )


def _smaller(draws: Draws) -> str | None:
    info = draws.info or {}
    if not np.any(info.get("smaller_steps", 0)):
        return None
    return (
        "chains left the real numbers at the step size that the curvature at their start asks for, "
        f"and were started again with {info['step_size']}: make num_warmup or thin longer, or pass "
        "step_size"
    )
