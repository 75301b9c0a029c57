"""The solvers by name, each a function of a `Task`."""

from __future__ import annotations

import functools
from collections.abc import Callable

from onebasin.align.checks import check_choice
from onebasin.align.frank_wolfe import frank_wolfe
from onebasin.align.search import Found
from onebasin.align.sinkhorn import sinkhorn
from onebasin.align.straight_through import straight_through
from onebasin.align.task import Task
from onebasin.align.thorough import thorough

SEARCHES = ("thorough",)


def descent(task: Task) -> Found:
    """Coordinate descent from every start, the best objective kept."""
    found = task.descent(task.starts, task.restarts)
    restless = ", which did not come to rest" if found.best.waiting else ""
    return Found(found.best, f"coordinate descent from {found.start}{restless}")


SOLVERS: dict[str, Callable[..., Found]] = {
    "descent": descent,
    "frank-wolfe": frank_wolfe,
    "straight-through": straight_through,
    "sinkhorn": sinkhorn,
}


def solve(
    task: Task, solver: str = "descent", search: str | None = None, steps: int | None = None
) -> Found:
    """Runs a solver; with search="thorough", from the best of many candidates."""
    check_choice("solver", solver, tuple(SOLVERS))
    run = SOLVERS[solver]
    if steps is not None:
        if solver == "descent" or steps < 1:
            others = ", ".join(repr(name) for name in SOLVERS if name != "descent")
            raise ValueError(
                f"got steps={steps} with solver={solver!r}, expected a step or more of {others}; "
                "coordinate descent has max_sweeps="
            )
        run = functools.partial(run, steps=steps)
    if search is None:
        return run(task)
    check_choice("search", search, SEARCHES)
    return thorough(task, refine=None if solver == "descent" else run)
