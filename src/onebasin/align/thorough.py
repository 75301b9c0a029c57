"""A search for hard problems: many cheap candidates, the best by the training loss half way.

Where networks are narrow, the start decides and the objective of a cost hardly tells good from bad;
the training loss half way between the two does, on training data. Candidates are matchings of
activations (for Gaussians: of networks drawn from them too), and coordinate descents on one or more
costs from those, from the identity, from a forward pass and from random starts. The best can be
refined by a solver that goes by the same loss.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np

from onebasin._core.cores import num_cores
from onebasin.align import channels
from onebasin.align.certificate import Candidate
from onebasin.align.checks import check_inputs
from onebasin.align.data_cost import DataCost
from onebasin.align.descent import Descent, Objective, forward
from onebasin.align.pairing import Pairing
from onebasin.align.search import STARTS, Found, search
from onebasin.align.settling import settle
from onebasin.align.state import State
from onebasin.align.task import Solver, Task, leaves_of, mean_of
from onebasin.posterior import Gaussian

MATCHED = ("activations", "correlation")


def thorough(
    task: Task, *, random_starts: int = 8, draws: int = 3, refine: Solver | None = None
) -> Found:
    """Tries many candidates and keeps the one with the least training loss half way.

    Args:
        task: The problem, with its `loss_fn`; with `apply_fn` and `inputs` activations are matched
            as well.
        random_starts: Number of random starts, besides the task's own `restarts`.
        draws: Between Gaussians, number of pairs of networks whose activations are matched, besides
            the pair of the means.
        refine: A solver to go on with from the best, such as `straight_through`.
    """
    task.check_loss("search 'thorough'")
    if task.apply_fn is not None and task.inputs is not None:
        check_inputs(task.inputs)
    skipped: list[str] = []
    objectives = {task.cost: task.objective} | _other_costs(task, skipped)
    found: list[tuple[str, State, int]] = []
    starts = [*_plain_starts(task), *_matchings(task, draws, skipped)]
    found += [(name, state, 0) for name, state in starts]
    begun = [*starts, *_random_starts(task, random_starts)]
    with ThreadPoolExecutor(min(num_cores(), len(objectives))) as threads:
        # An objective keeps products from one descent to the next: each has a thread of its own.
        descents = threads.map(
            lambda objective: [_descended(task, objective, [start]) for _, start in begun],
            objectives.values(),
        )
        ended = list(descents)
    for (name, _), of_start in zip(begun, zip(*ended, strict=True), strict=True):
        for cost, best in zip(objectives, of_start, strict=True):
            found.append((f"{name}, then {cost}", best.state, best.sweeps))
    tried = _judged(task, found)
    if refine is not None:
        _, best = min(tried, key=_rank)
        refined = refine(dataclasses.replace(task, starts=(best.state,)))
        name = f"{min(tried, key=_rank)[0].name}, then {refined.start}"
        tried += _judged(task, [(name, refined.best.state, refined.best.sweeps)])
    tried.sort(key=_rank)
    chosen, best = tried[0]
    title = f"{chosen.name} (least midpoint loss of {len(tried)} candidates)"
    return Found(best, title, tuple(candidate for candidate, _ in tried), tuple(skipped))


def _rank(tried: tuple[Candidate, Descent]) -> tuple[float, float]:
    return tried[0].loss, -tried[0].objective


def _judged(task: Task, found: list[tuple[str, State, int]]) -> list[tuple[Candidate, Descent]]:
    """Objective and loss of every state; states that several candidates end in are run once."""
    losses: dict[bytes, float] = {}
    tried = []
    for name, state, sweeps in found:
        key = b"".join(x.tobytes() for x in (*state.permutations.values(), *state.signs.values()))
        if key not in losses:
            losses[key] = task.loss(state)
        value = task.objective.objective(state)
        ended = Descent(state, value, sweeps, 0, set())
        tried.append((Candidate(name, value, losses[key]), ended))
    return tried


def _descended(task: Task, objective: Objective, starts: Sequence[str | State]) -> Descent:
    best = search(
        objective,
        task.assignment,
        starts=starts,
        seed=task.seed,
        max_sweeps=task.max_sweeps,
        kicks=0,
    ).best
    settle(objective, best.state, task.assignment)
    return best


def _plain_starts(task: Task) -> Iterator[tuple[str, State]]:
    given = [start for start in task.starts if isinstance(start, State)]
    yield from ((f"given {number}", state) for number, state in enumerate(given, start=1))
    yield "identity", State.identity(task.symmetry)
    yield "forward", forward(task.objective, task.assignment)[0]


def _random_starts(task: Task, count: int) -> Iterator[tuple[str, State]]:
    rng = np.random.default_rng(task.seed)
    for number in range(count + task.restarts):
        yield f"random {number + 1}", State.random(task.symmetry, rng)


def _matchings(task: Task, draws: int, skipped: list[str]) -> Iterator[tuple[str, State]]:
    """Matchings of what the two networks do, and of networks drawn from two Gaussians."""
    if task.apply_fn is None or task.inputs is None:
        skipped.append("activations were not matched: that needs apply_fn= and inputs=")
        return
    pairs = {"": (mean_of(task.reference), mean_of(task.moving))}
    if isinstance(task.reference, Gaussian) and isinstance(task.moving, Gaussian):
        keys = jax.random.split(jax.random.key(task.seed), (draws, 2))
        for number, (first, second) in enumerate(keys, start=1):
            pair = task.reference.draw(first), task.moving.draw(second)
            pairs[f" of draw {number}"] = pair
    for cost in MATCHED:
        data = _data_cost(task, cost, skipped)
        if data is None:
            continue
        for which, pair in pairs.items():
            yield cost + which, _descended(task, data.objective(*pair), STARTS).state


def _data_cost(task: Task, cost: str, skipped: list[str]) -> DataCost | None:
    """A cost on the networks at work, unless it cannot see a factor of this model."""
    if task.apply_fn is None or task.inputs is None:
        return None
    mean = mean_of(task.moving)
    try:
        return DataCost(task.symmetry, cost, task.apply_fn, mean, task.inputs, task.batch_size)
    except ValueError as error:
        skipped.append(f"no candidates by {cost}: {error}")
        return None


def _other_costs(task: Task, skipped: list[str]) -> dict[str, Objective]:
    """Objectives to descend on beside the task's own."""
    mean0, mean1 = leaves_of(mean_of(task.reference)), leaves_of(mean_of(task.moving))
    found: dict[str, Objective] = {}
    if task.cost != "weights":
        found["weights"] = Pairing(task.symmetry, channels.weights(mean0, mean1).channels)
    if isinstance(task.reference, Gaussian) and task.cost != "wasserstein":
        std0, std1 = (
            [np.sqrt(v) for v in leaves_of(q.variance())] for q in (task.reference, task.moving)
        )
        paired = channels.wasserstein(mean0, std0, mean1, std1)
        found["wasserstein"] = Pairing(task.symmetry, paired.channels)
    if task.cost != "contributions":
        data = _data_cost(task, "contributions", skipped)
        if data is not None:
            found["contributions"] = data.objective(mean_of(task.reference), mean_of(task.moving))
    return found
