"""Numbers and tables for people: what the outcomes of this room print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np


def number(value: Any) -> str:
    """A number in four digits; the shape, where there is none yet or more than one."""
    held = isinstance(value, jax.Array | np.ndarray | np.generic | float | int)
    if held and not isinstance(value, jax.core.Tracer) and np.size(value) == 1:
        return f"{np.asarray(value).item():.4g}"
    return f"array {np.shape(value)}"


def lowest(values: Any) -> str:
    """The least of the values, as `number` tells it."""
    return number(np.min(values) if _held(values) else values)


def highest(values: Any) -> str:
    """The largest of the values, as `number` tells it."""
    return number(np.max(values) if _held(values) else values)


def by_name(values: Any) -> dict[str, Any]:
    """Losses by name; the name of a single one is "loss"."""
    return values if isinstance(values, dict) else {"loss": values}


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows in columns of one width, without trailing blanks."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _held(values: Any) -> bool:
    return not isinstance(values, jax.core.Tracer) and np.size(values) > 0
