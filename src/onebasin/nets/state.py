"""Weights and state: what is learned, and what a network keeps count of while it learns.

A network with running statistics has them beside its weights, as Flax has them: its parameters are
{"params": weights, "batch_stats": state}. State has no prior, no noise and no gradient.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

WEIGHTS = "params"


def has_state(params: Any) -> bool:
    """Whether parameters hold weights and state in collections of their own."""
    return isinstance(params, Mapping) and WEIGHTS in params and len(params) > 1


def split(params: Any) -> tuple[Any, dict[str, Any]]:
    """Weights, and state by collection; parameters without state are all weights.

    Example:
        >>> from onebasin.nets.state import split
        >>> split({"params": {"w": 1.0}, "batch_stats": {"mean": 0.0}})
        ({'w': 1.0}, {'batch_stats': {'mean': 0.0}})
        >>> split({"w": 1.0})
        ({'w': 1.0}, {})
    """
    if not has_state(params):
        return params, {}
    return params[WEIGHTS], {name: x for name, x in params.items() if name != WEIGHTS}


def join(weights: Any, state: Mapping[str, Any]) -> Any:
    """Parameters out of weights and state: the reverse of `split`."""
    return {WEIGHTS: weights, **state} if state else weights


def is_trained_apart(apply: Any) -> bool:
    """Whether a network's function can be told that it is being trained: it takes `train`.

    What wraps another function says so by its attribute `takes_train`.
    """
    said = getattr(apply, "takes_train", None)
    if said is not None:
        return bool(said)
    try:
        return "train" in inspect.signature(apply).parameters
    except (TypeError, ValueError):
        return False
