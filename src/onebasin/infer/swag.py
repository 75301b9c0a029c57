"""SWAG: a Gaussian fitted to the last stretch of training.

From a trained network SGD goes on at a constant rate, and one network theta_i is kept per epoch.
With their mean and variance s^2 and the last K deviations d_i = theta_i - mean,

    q = N(mean, diag(s^2) / 2 + D D^T / (2 (K - 1))),   D = [d_1 ... d_K]

(maddox2019simple). Deviations are taken from the final mean, where the paper takes them from the
running one: then D D^T / (K - 1) is the sample covariance when all networks are kept.

The spread is that of SGD's noise: with all data in a batch there is none, and SGD stands still.
"""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from onebasin.engine import Engine
from onebasin.infer import training
from onebasin.infer.chunks import on_engine
from onebasin.infer.cohorts import rows_of
from onebasin.infer.ensemble import kept
from onebasin.infer.loop import DivergenceError, Journal, summary
from onebasin.infer.problem import Problem
from onebasin.posterior import Gaussian, Mixture
from onebasin.store import Run

# Of the examples, one in so many makes up a batch of SGD at most.
BATCHES = 10
# Of the size of weights, the part that is hardly any spread.
LITTLE = 1e-3
# The rates of SGD that are tried, and how many nats an example it may climb without having left:
# so many, or as many as the loss has.
RATES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
CLIMB = 1.0


@on_engine(version=1)
def swag(
    key: jax.Array,
    problem: Problem,
    *,
    num_networks: int = 1,
    num_samples: int = 20,
    rank: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    swag_learning_rate: float | None = None,
    momentum: float = 0.9,
    learning_rate: float | None = None,
    init: Any = "random",
    memory: int | None = None,
    progress: bool = False,
    run: str | Path | Run | None = None,
    chunk: int | None = None,
    engine: Engine | None = None,
) -> Gaussian | Mixture:
    """Fits a Gaussian around each of several trained networks.

    Args:
        key: Random key.
        problem: What to learn.
        num_networks: How many networks; more than one makes a mixture.
        num_samples: How many networks along the way, one per epoch, the Gaussian is fitted to.
        rank: How many of the last deviations are kept, K; all by default, 0 for a diagonal fit.
        epochs: Epochs of the training before, by default as for `ensemble`.
        batch_size: Examples per step; by default 100, or all of smaller data in the training
            before, and at most a tenth of the data in SGD, whose noise makes the spread.
        swag_learning_rate: The constant rate of SGD; None for 0.01, or a tenth, a hundredth and so
            on where SGD would leave what was trained.
        momentum: Its momentum.
        learning_rate: Of Adam in the training before, by default as for `ensemble`.
        init: Where training starts, as for `ensemble`.
        memory: Budget in bytes of one step.
        progress: Whether to draw bars.
        run: A folder that keeps the state; the same call continues there.
        chunk: Epochs between two saves.
        engine: Where chunks of networks run as tasks; None for here, all as one program.

    Returns:
        A Gaussian, or a mixture of one for each network; `info` has the loss curves.

    Warns:
        UserWarning: If SGD hardly moved, so that the fit has hardly any spread; if it left what was
            trained at the rate given, or at all.
    """
    arguments = dict(locals())
    if num_samples < 2:
        raise ValueError(f"got num_samples={num_samples}: a spread needs at least two networks")
    rank = num_samples if rank is None else rank
    if rank == 1 or not 0 <= rank <= num_samples:
        raise ValueError(f"got rank={rank}, expected 0, or 2 to num_samples={num_samples}")
    journal = Journal.open(swag, key, problem, arguments, run, progress, chunk)
    for_init, for_training, for_swag = jax.random.split(key, 3)
    settings: dict[str, Any] = {"memory": memory, "learning_rate": learning_rate}
    trained, before = training.train(
        journal,
        "training",
        for_training,
        problem,
        training.starts(for_init, problem, num_networks, init),
        num_networks,
        training.potential,
        optimizer=None,
        epochs=epochs,
        batch_size=batch_size,
        **settings,
    )

    def walk(number: int, rate: float) -> Any:
        _, outputs = training.train(
            journal,
            f"averaging-{number}" if number else "averaging",
            jax.random.clone(for_swag),
            problem,
            rows_of(trained),
            num_networks,
            training.potential,
            optimizer=_sgd(rate, momentum),
            epochs=num_samples,
            batch_size=_noisy_batch(problem, batch_size),
            every=1,
            snapshot=kept,
            **settings,
        )
        return outputs

    rate, outputs = _nearby(walk, before["loss"], swag_learning_rate)
    info = summary(
        journal, training_loss=before["loss"], loss=outputs["loss"], swag_learning_rate=rate
    )
    fitted = [
        problem.gaussian(
            *swag_moments(jax.tree.map(lambda x, i=i: x[:, i], outputs["unknowns"]), rank),
            info=info,
        )
        for i in range(num_networks)
    ]
    _warn_of_little_spread(fitted)
    return fitted[0] if num_networks == 1 else Mixture(fitted, info=info)


def _nearby(walk: Any, training: Any, given: float | None) -> tuple[float, Any]:
    """The outputs of SGD at the rate given, or at the first of the usual ones that stays near.

    How large a rate may be goes by the curvature, which where noise is learned, or small, is a
    thousand times that of a classification.

    Args:
        walk: walk(number, rate): the outputs of SGD.
        training: The loss of the training before, (epoch, network).
        given: The rate, or None.
    """
    trained = np.asarray(training)[-1]
    rates = RATES if given is None else (given,)
    for number, rate in enumerate(rates):
        last = number == len(rates) - 1
        try:
            outputs = walk(number, rate)
        except DivergenceError:
            if last:
                raise
            continue
        climbs = np.max(np.asarray(outputs["loss"]), axis=0) - trained
        if np.all(climbs <= np.maximum(np.abs(trained), CLIMB)):
            break
        if last:
            warnings.warn(
                f"SGD at the rate {rate:g} left what was trained, its loss rose by "
                f"{climbs.max():.3g} nats an example: pass a smaller swag_learning_rate=",
                stacklevel=4,
            )
    return rate, outputs


def swag_moments(snapshots: Any, rank: int) -> tuple[Any, Any, Any]:
    """Mean, diagonal standard deviation and low-rank factor from stacked networks.

    Example:
        >>> import jax.numpy as jnp
        >>> from onebasin.infer.swag import swag_moments
        >>> mean, std, factor = swag_moments(jnp.array([[0.0, 1.0], [2.0, 1.0]]), rank=2)
        >>> mean.tolist(), std.tolist(), factor.shape
        ([1.0, 1.0], [0.7071067690849304, 0.0], (2, 2))
    """
    mean = jax.tree.map(lambda x: jnp.mean(x, axis=0), snapshots)
    std = jax.tree.map(lambda x: jnp.std(x, axis=0) / jnp.sqrt(2.0), snapshots)
    if not rank:
        return mean, std, None
    scale = 1 / jnp.sqrt(2.0 * (rank - 1))
    factor = jax.tree.map(lambda x, m: scale * (x[-rank:] - m), snapshots, mean)
    return mean, std, factor


def _noisy_batch(problem: Problem, batch_size: int | None) -> int | None:
    """The batch size of SGD: by default so small that its gradient differs between batches."""
    if batch_size is not None:
        return batch_size
    return max(1, min(training.BATCH_SIZE, problem.num_examples // BATCHES))


def _warn_of_little_spread(fitted: list[Gaussian]) -> None:
    for q in fitted:
        spread, size = (_root_of_sum(x) for x in (q.variance(), jax.tree.map(jnp.square, q.mean)))
        if spread < LITTLE * size:
            warnings.warn(
                f"the fit has hardly any spread, {spread / size:.1g} of the size of its weights, "
                "as SGD stood still: pass a smaller batch_size= or a larger swag_learning_rate=",
                stacklevel=4,
            )
            return


def _root_of_sum(squares: Any) -> float:
    return float(np.sqrt(sum(float(jnp.sum(leaf)) for leaf in jax.tree.leaves(squares))))


@functools.lru_cache(maxsize=16)
def _sgd(learning_rate: float, momentum: float) -> optax.GradientTransformation:
    return optax.sgd(learning_rate, momentum)
