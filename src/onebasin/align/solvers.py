"""The solvers by name, each a function of a `Task`."""

from __future__ import annotations

from onebasin.align.checks import check_choice
from onebasin.align.frank_wolfe import frank_wolfe
from onebasin.align.search import Found
from onebasin.align.sinkhorn import sinkhorn
from onebasin.align.straight_through import straight_through
from onebasin.align.task import Solver, Task
from onebasin.align.thorough import thorough

SEARCHES = ("thorough",)


def descent(task: Task) -> Found:
    """Coordinate descent from every start, the best objective kept."""
    found = task.descent(task.starts, task.restarts)
    return Found(found.best, f"coordinate descent from {found.start}")


SOLVERS: dict[str, Solver] = {
    "descent": descent,
    "frank-wolfe": frank_wolfe,
    "straight-through": straight_through,
    "sinkhorn": sinkhorn,
}


def solve(task: Task, solver: str = "descent", search: str | None = None) -> Found:
    """Runs a solver; with search="thorough", from the best of many candidates."""
    check_choice("solver", solver, tuple(SOLVERS))
    if search is None:
        return SOLVERS[solver](task)
    check_choice("search", search, SEARCHES)
    return thorough(task, refine=None if solver == "descent" else SOLVERS[solver])
