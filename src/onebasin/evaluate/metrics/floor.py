"""How well chains agree with each other: the floor under every comparison with them.

No posterior can be asked to be closer to a chain than another chain is. The floor judges each chain
by all others; the left-out protocol has each chain judge what was made without it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.evaluate import table
from onebasin.evaluate.metrics import checks
from onebasin.evaluate.metrics.bootstrap import Interval, bootstrap
from onebasin.evaluate.metrics.closeness import half_distance, same_class

REMAINING, SINGLE = "remaining chains", "one chain"


@dataclasses.dataclass(frozen=True, eq=False)
class ChainFloor:
    """How well each chain agrees with the others; intervals are over examples.

    Attributes:
        modes: The chains.
        agreement: Of each chain's predictive with that of all others, (chain,).
        total_variation: The same, (chain,).
        mean_agreement: The mean over chains.
        mean_total_variation: The mean over chains.
    """

    modes: tuple[int, ...]
    agreement: Interval
    total_variation: Interval
    mean_agreement: Interval
    mean_total_variation: Interval

    def __str__(self) -> str:
        rows = [
            (f"chain {mode}", str(_at(self.agreement, i)), str(_at(self.total_variation, i)))
            for i, mode in enumerate(self.modes)
        ]
        rows.append(("mean", str(self.mean_agreement), str(self.mean_total_variation)))
        return table.render(("against the others", "agreement", "total variation"), rows)


@dataclasses.dataclass(frozen=True, eq=False)
class Judgement:
    """How close a predictive is to the chain that it was made without, by judging chain.

    Attributes:
        agreement: With each judge, (chain,).
        total_variation: With each judge, (chain,).
        mean_agreement: The mean over judges, with an interval over examples.
        mean_total_variation: The mean over judges, with an interval over examples.
        ratio: The mean total variation divided by that of the remaining chains.
    """

    agreement: np.ndarray
    total_variation: np.ndarray
    mean_agreement: Interval
    mean_total_variation: Interval
    ratio: Interval


@dataclasses.dataclass(frozen=True, eq=False)
class LeftOut:
    """What each chain in turn says of what was made without it.

    Attributes:
        modes: The judges.
        rows: A judgement for the remaining chains, for one chain, and for every candidate.
    """

    modes: tuple[int, ...]
    rows: dict[str, Judgement]

    def __getitem__(self, name: str) -> Judgement:
        return self.rows[name]

    def __str__(self) -> str:
        header = ("judged by a chain left out", "agreement", "total variation", "TV ratio")
        rows = [
            (name, str(row.mean_agreement), str(row.mean_total_variation), str(row.ratio))
            for name, row in self.rows.items()
        ]
        return table.render(header, rows)


def chain_floor(
    probs: Any, mode: Any, *, num_resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> ChainFloor:
    """How well each chain's predictive agrees with that of all the others together.

    Args:
        probs: Probabilities of samples, (sample, example, class).
        mode: The chain that each sample came from, (sample,).
        num_resamples: Resamples of the examples for the intervals.
        level: The share of resamples inside an interval.
        seed: Seed of the resampling.

    Raises:
        ValueError: If all samples are of one chain.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from onebasin import metrics
        >>> logits = 3 * jax.random.normal(jax.random.key(0), (50, 4))
        >>> noise = jax.random.normal(jax.random.key(1), (20, 50, 4))
        >>> floor = metrics.chain_floor(jax.nn.softmax(logits + noise), jnp.arange(20) % 2)
        >>> floor.modes, bool(floor.mean_total_variation.value < 0.2)
        ((0, 1), True)
    """
    each, modes, counts = checks.chains(probs, mode)
    rest = _others(each, counts)
    same, distance = same_class(each, rest), half_distance(each, rest)
    columns = [same.mean(axis=0)[None], same, distance.mean(axis=0)[None], distance]
    found = bootstrap(
        _means,
        jnp.concatenate(columns).T,
        num_resamples=num_resamples,
        level=level,
        seed=seed,
    )
    half = len(modes) + 1
    return ChainFloor(
        modes=tuple(modes.tolist()),
        agreement=_at(found, slice(1, half)),
        total_variation=_at(found, slice(half + 1, None)),
        mean_agreement=_at(found, 0),
        mean_total_variation=_at(found, half),
    )


def left_out(
    probs: Any,
    mode: Any,
    candidates: Mapping[str, Any | Callable[[tuple[int, ...]], Any]] | None = None,
    *,
    judges: Sequence[int] | None = None,
    num_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> LeftOut:
    """Each chain in turn judges what was made without it.

    Beside the candidates stand the predictive of all remaining chains together, and that of one
    chain (the mean of what each remaining chain reaches): a candidate that does as well cannot be
    told from another run of the chains.

    Args:
        probs: Probabilities of samples, (sample, example, class).
        mode: The chain that each sample came from, (sample,).
        candidates: By name, probabilities that owe nothing to the chains, (example, class) or
            (sample, example, class); or a function of the chains that were kept, a tuple of modes,
            that returns such.
        judges: The chains that judge in turn; all by default.
        num_resamples: Resamples of the examples for the intervals.
        level: The share of resamples inside an interval.
        seed: Seed of the resampling.

    Raises:
        ValueError: If all samples are of one chain.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from onebasin import metrics
        >>> logits = 3 * jax.random.normal(jax.random.key(0), (50, 4))
        >>> noise = jax.random.normal(jax.random.key(1), (30, 50, 4))
        >>> probs, mode = jax.nn.softmax(logits + noise), jnp.arange(30) % 3
        >>> found = metrics.left_out(probs, mode, {"no noise": jax.nn.softmax(logits)})
        >>> list(found.rows)
        ['remaining chains', 'one chain', 'no noise']
    """
    each, modes, counts = checks.chains(probs, mode)
    places = _places(modes, judges)
    rest = _others(each, counts)
    alone = _singles(each)
    judged = {
        REMAINING: _judge(each[places], rest[places]),
        SINGLE: (alone[0][places], alone[1][places]),
    }
    for name, candidate in (candidates or {}).items():
        if name in judged:
            raise ValueError(
                f"a candidate is called {name!r}, which is a row of its own: rename it"
            )
        made = [_made(name, candidate, modes, int(j), each[j]) for j in places]
        judged[name] = _judge(each[places], jnp.stack(made))
    values = jnp.concatenate([jnp.stack([judged[n][k].mean(0) for n in judged]) for k in (0, 1)])
    found = bootstrap(
        _means_and_ratios, values.T, num_resamples=num_resamples, level=level, seed=seed
    )
    size = len(judged)
    rows = {
        name: Judgement(
            agreement=np.asarray(judged[name][0].mean(axis=-1)),
            total_variation=np.asarray(judged[name][1].mean(axis=-1)),
            mean_agreement=_at(found, i),
            mean_total_variation=_at(found, size + i),
            ratio=_at(found, 2 * size + i),
        )
        for i, name in enumerate(judged)
    }
    return LeftOut(tuple(modes[places].tolist()), rows)


def _places(modes: np.ndarray, judges: Sequence[int] | None) -> np.ndarray:
    """Where the judges stand among the chains."""
    if judges is None:
        return np.arange(len(modes))
    unknown = sorted(set(judges) - set(modes.tolist()))
    if unknown or not len(judges):
        raise ValueError(
            f"got the judges {list(judges)}, expected one or more of the chains {modes.tolist()}"
        )
    return np.array([int(np.flatnonzero(modes == judge)[0]) for judge in judges])


def _others(each: jax.Array, counts: np.ndarray) -> jax.Array:
    """For each chain the predictive of all draws of the others."""
    share = np.where(np.eye(len(counts), dtype=bool), 0, counts[None, :])
    share = share / share.sum(axis=1, keepdims=True)
    return jnp.tensordot(jnp.asarray(share, each.dtype), each, 1, precision="highest")


def _judge(judges: jax.Array, predictives: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Agreement and total variation by judge and example."""
    return same_class(judges, predictives).astype(float), half_distance(judges, predictives)


def _singles(each: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The mean over the remaining chains of what each reaches alone."""
    same, distance = _judge(each[:, None], each[None])
    # The judge itself is in the sum, with agreement 1 and distance 0.
    others = len(each) - 1
    return (same.sum(axis=1) - 1) / others, distance.sum(axis=1) / others


def _made(name: str, candidate: Any, modes: np.ndarray, judge: int, like: jax.Array) -> jax.Array:
    """The predictive of a candidate for one judge."""
    if callable(candidate):
        candidate = candidate(tuple(np.delete(modes, judge).tolist()))
    found = checks.predictive(candidate, f"the candidate {name!r}")
    if found.shape != like.shape:
        raise ValueError(
            f"the candidate {name!r} has {found.shape[0]} examples and {found.shape[1]} classes, "
            f"expected {like.shape[0]} and {like.shape[1]} as the chains have"
        )
    return found


def _means(values: jax.Array, *, sample_weight: Any = None) -> jax.Array:
    return checks.average(values.T, sample_weight)


def _means_and_ratios(values: jax.Array, *, sample_weight: Any = None) -> jax.Array:
    means = checks.average(values.T, sample_weight)
    distances = means[len(means) // 2 :]
    return jnp.concatenate([means, distances / distances[0]])


def _at(interval: Interval, index: Any) -> Interval:
    return Interval(*(part[index] for part in interval))
