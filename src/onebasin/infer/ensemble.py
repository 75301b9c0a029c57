"""Deep ensembles: networks trained from independent starts.

Each network minimises U(theta) = -sum_n log p(y_n | x_n, theta) - log p(theta) (the maximum a
posteriori network), or the first term alone, by minibatches with any optax optimiser
(lakshminarayanan2017simple).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from onebasin.engine import Engine
from onebasin.infer import training
from onebasin.infer.chunks import on_engine
from onebasin.infer.loop import Journal, by_member, modes, summary
from onebasin.infer.optimizers import Recipe
from onebasin.infer.problem import Problem
from onebasin.posterior import Draws
from onebasin.store import Run

OBJECTIVES = {"map": training.potential, "likelihood": training.negative_log_likelihood}


@on_engine(version=1)
def ensemble(
    key: jax.Array,
    problem: Problem,
    *,
    num_networks: int = 5,
    epochs: int | None = None,
    batch_size: int | None = None,
    optimizer: optax.GradientTransformation | Recipe | None = None,
    learning_rate: float | None = None,
    objective: str = "map",
    init: Any = "random",
    every: int | None = None,
    memory: int | None = None,
    progress: bool = False,
    run: str | Path | Run | None = None,
    chunk: int | None = None,
    engine: Engine | None = None,
) -> Draws:
    """Trains an ensemble; all networks are one compiled program.

    Args:
        key: Random key.
        problem: What to learn.
        num_networks: How many networks.
        epochs: Passes over the data; by default 50, or as many as make 2,000 steps, 5,000 where
            they are cheap and `learning_rate` is not given either.
        batch_size: Examples per step; by default 100, or all of smaller data.
        optimizer: Any optax optimiser, or what `sgd` or `adam` of this room return, whose rate goes
            by the length of the training; by default Adam with a cosine schedule.
        learning_rate: Of the default optimiser; by default 3e-3, or 3e-2 where passes over the data
            are cheap and `epochs` is not given either.
        objective: "map", or "likelihood" for no prior term (weight decay, if any, is then the
            optimiser's).
        init: "random", "prior", `Draws` of as many networks, or one network's parameters for all.
        every: Keep every network each so many epochs, with the statistic "epoch"; by default only
            the last.
        memory: Budget in bytes of one step; networks are trained in groups that fit.
        progress: Whether to draw a bar.
        run: A folder that keeps the state; the same call continues there.
        chunk: Epochs between two saves; the result does not depend on it.
        engine: Where chunks of networks run as tasks; None for here, all as one program.

    Returns:
        The networks, each a mode of its own, with their log densities; `info` has the loss curve,
        (epoch, network).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import onebasin as ob
        >>> x = jnp.linspace(-1, 1, 16)[:, None]
        >>> problem = ob.Problem(
        ...     ob.nets.mlp(hidden=(4,), outputs=1), (x, x), likelihood="gaussian", noise=0.1
        ... )
        >>> ob.infer.ensemble(jax.random.key(0), problem, num_networks=3, epochs=2)
        Draws(3 draws of 13 weights, 3 modes)
    """
    arguments = dict(locals())
    if objective not in OBJECTIVES:
        raise ValueError(f"got objective={objective!r}, expected one of {', '.join(OBJECTIVES)}")
    if every is not None and every < 1:
        raise ValueError(f"got every={every}, expected at least one epoch")
    if every is not None and epochs is not None and every > epochs:
        raise ValueError(f"got every={every} and epochs={epochs}: no network would be kept")
    journal = Journal.open(ensemble, key, problem, arguments, run, progress, chunk)
    for_init, for_training = jax.random.split(key)
    trained, outputs = training.train(
        journal,
        "training",
        for_training,
        problem,
        training.starts(for_init, problem, num_networks, init),
        num_networks,
        OBJECTIVES[objective],
        optimizer=optimizer,
        learning_rate=learning_rate,
        epochs=epochs,
        batch_size=batch_size,
        memory=memory,
        every=every,
        snapshot=kept,
    )
    info = summary(journal, loss=outputs["loss"])
    if every is None:
        density = training.log_densities(problem, trained)
        return problem.draws(trained, np.arange(num_networks, dtype=np.int32), density, info=info)
    steps = len(outputs["loss"])
    snapshots = by_member(outputs["unknowns"])
    epoch = np.tile(np.arange(1, steps + 1, dtype=np.int32) * every, num_networks)
    return problem.draws(snapshots, modes(steps, num_networks), None, {"epoch": epoch}, info=info)


def kept(problem: Problem, unknowns: Any) -> dict[str, Any]:
    """A snapshot of one network."""
    return {"unknowns": unknowns}
