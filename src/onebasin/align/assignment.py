"""Exact linear assignment: `lapx` when it is installed, SciPy otherwise, the same optimum."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from onebasin._core.cores import num_cores

Solver = Callable[[np.ndarray], np.ndarray]
# Units below which starting threads takes longer than the assignment itself.
WORTH_A_THREAD = 48
# Share of a row's best gain that the solver begins with.
HEAD_START = 0.75


class _Room(threading.local):
    """Memory that a thread writes costs to again and again: new pages take as long as the sums."""

    last = np.empty((0, 0))

    def room(self, like: np.ndarray) -> np.ndarray:
        if self.last.shape != like.shape or self.last.dtype != like.dtype:
            self.last = np.empty(like.shape, like.dtype)
        return self.last


def _lapx() -> Solver | None:
    try:
        from lap import lapjvr
    except ImportError:
        return None

    own = _Room()

    def solve(gain: np.ndarray) -> np.ndarray:
        # A number per row leaves the optimum where it is; with these it is found in half the time.
        head_start = gain.dtype.type(HEAD_START) * gain.max(axis=1, keepdims=True)
        cost = np.subtract(head_start, gain, out=own.room(gain))
        return lapjvr(cost, return_cost=False)[1]

    return solve


def _scipy(gain: np.ndarray) -> np.ndarray:
    # Half a second to import, and not needed beside lapx.
    from scipy.optimize import linear_sum_assignment

    return linear_sum_assignment(gain, maximize=True)[1]


def available_solvers() -> dict[str, Solver]:
    """The solvers that can be used here, fastest first."""
    fast = _lapx()
    return ({"lapx": fast} if fast else {}) | {"scipy": _scipy}


class Assignment:
    """Solves assignment problems, many at once on a pool of threads.

    Args:
        solver: "lapx", "scipy", or None for the fastest there is.
        threads: Number of threads for batches; by default one per core that may be taken.
    """

    def __init__(self, solver: str | None = None, threads: int | None = None):
        known = available_solvers()
        if solver is not None and solver not in known:
            raise ValueError(
                f"no assignment solver {solver!r} here; there are: {', '.join(known)} "
                "(pip install onebasin[fast] brings lapx)"
            )
        self.name = solver or next(iter(known))
        self._solve = known[self.name]
        self._threads = threads or num_cores()

    def __call__(self, gain: np.ndarray) -> np.ndarray:
        """Columns [..., n] that maximise the sum of gain[..., i, column[i]]."""
        if gain.shape[-1] == 1:
            return np.zeros(gain.shape[:-1], np.int64)
        flat = gain.reshape(-1, *gain.shape[-2:])
        if len(flat) == 1 or gain.shape[-1] < WORTH_A_THREAD:
            columns: Any = [self._solve(one) for one in flat]
        else:
            with concurrent.futures.ThreadPoolExecutor(self._threads) as pool:
                columns = list(pool.map(self._solve, flat))
        return np.stack(columns).astype(np.int64).reshape(gain.shape[:-1])


def value(gain: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The value of an assignment, summed over units: [...]."""
    return np.take_along_axis(gain, columns[..., None], axis=-1)[..., 0].sum(axis=-1)


def margin(gain: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Per unit, how much its match gains over the best other partner (negative: given away)."""
    if gain.shape[-1] == 1:
        return np.full(columns.shape, np.inf)
    own = np.take_along_axis(gain, columns[..., None], axis=-1)
    rest = gain.copy()
    np.put_along_axis(rest, columns[..., None], -np.inf, axis=-1)
    return own[..., 0] - rest.max(axis=-1)
