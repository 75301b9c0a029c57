"""Matrices over pairs of samples on an engine: a block of rows is a task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from onebasin.engine import Engine, Shared, Task, run_tasks
from onebasin.store.fingerprint import fingerprint
from onebasin.store.sealed import Seals, is_sealed, seal

ROWS = 64


def in_blocks(
    engine: Engine, name: str, function: Callable[..., Any], samples: Any, *more: Any
) -> np.ndarray:
    """The matrix function(samples, samples, *more), some rows at a time.

    Args:
        engine: Where tasks run.
        name: What they are called.
        function: function(some, all, *more) -> the rows of `some`, each by itself.
        samples: Samples along the first axis.
        more: What else it takes.
    """
    all_samples = np.asarray(samples)
    common = fingerprint(name, function, all_samples, more)
    shared = engine.share((function, all_samples, more))
    folder = (engine.directory / name).resolve()
    seals = Seals()
    orders = []
    for first in range(0, len(all_samples), ROWS):
        question = fingerprint(common, first)
        orders.append((first, str(folder / f"{question[:32]}.safetensors"), question))
    tasks = (
        Task(f"{name}/{order[0]}", some_rows, (shared, *order))
        for order in orders
        if not seals.is_sealed(Path(order[1]), order[2])
    )
    for _ in run_tasks(engine, tasks, title=name, total=len(orders)):
        pass
    found = [seals.unseal(Path(file), question)[0]["rows"] for _, file, question in orders]
    return np.concatenate(found)


def some_rows(shared: Shared[Any], first: int, file: str, question: str) -> dict[str, str]:
    """One block of rows, as a file."""
    path = Path(file)
    if not is_sealed(path, question):
        function, samples, more = shared.get()
        some = jnp.asarray(samples[first : first + ROWS])
        seal(path, question, {"rows": np.asarray(function(some, jnp.asarray(samples), *more))})
    return {"file": path.name}
