"""Distilling draws into one Gaussian: its predictive is fitted to theirs.

Mean m, standard deviation s and, with a rank, the factor F of a Gaussian minimise the cross-entropy

    -E_x sum_c p(c | x) log q(c | x),   q(c | x) = mean of softmax f(m + s e + F^T z, x)_c,

where p is the draws' predictive. Inputs x are training inputs and what module `inputs` makes of
them, labelled by the draws as well. Several starts are refined, and the one that is best on
held-out inputs is kept. A low-rank part joins last, with many more networks per step: the logarithm
of a mean of few is biased, and the bias eats the spread.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from onebasin.compact import predictive
from onebasin.compact.inputs import Extra, joined, mixtures
from onebasin.posterior import Draws, Gaussian
from onebasin.symmetry.keys import key_or_first

HELD_OUT = 0.1
SMALL_STD = 0.02
# The mean of few networks is noisy, and its logarithm too low by that: a score needs many.
SCORED = 1024
SCORED_INPUTS = 4096
SHARE = 0.1
FINALISTS = 2
Settings = tuple[int, int, int, float]


@dataclasses.dataclass(frozen=True, eq=False)
class Distilled:
    """A distilled Gaussian.

    Attributes:
        posterior: The Gaussian.
        start: The name of the start that was best.
        scores: Held-out cross-entropy in nats above that of the draws themselves, by start.
    """

    posterior: Gaussian
    start: str
    scores: dict[str, float]


def distil(
    apply_fn: predictive.Apply,
    draws: Draws,
    inputs: Any,
    starts: Mapping[str, Gaussian],
    *,
    key: jax.Array | None = None,
    steps: int = 2000,
    num_samples: int = 16,
    batch_size: int = 200,
    learning_rate: float = 3e-3,
    extra: Extra | None = mixtures,
    rank: int = 0,
    rank_steps: int = 6000,
    rank_samples: int = 512,
    rank_batch_size: int = 32,
) -> Distilled:
    """Refines mean and spread of a Gaussian so that it predicts as the draws do.

    Args:
        apply_fn: The model, to logits.
        draws: What is distilled.
        inputs: Training inputs; a tenth is held out, with its own extra inputs, for the scores.
        starts: Gaussians to start from, by name.
        key: Random key; `jax.random.key(0)` by default.
        steps: Steps of Adam; of more than two starts, the two that are best after a quarter of
            them go all the way.
        num_samples: Networks drawn per step, in pairs that mirror each other.
        batch_size: Inputs per step.
        learning_rate: Of Adam, falling to zero along a cosine.
        extra: extra(key, inputs) gives inputs beyond the training set; None for none.
        rank: Rank of a low-rank part that the best diagonal Gaussian is given, and which is refined
            with it; 0 keeps it diagonal.
        rank_steps: Steps of Adam with the low-rank part.
        rank_samples: Networks drawn per step then.
        rank_batch_size: Inputs per step then.

    Returns:
        The best Gaussian with the scores of all starts.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import onebasin as ob
        >>> from onebasin.compact import distil
        >>> draws = ob.Draws(1.0 + 0.1 * jax.random.normal(jax.random.key(0), (20, 3, 2)))
        >>> x = jax.random.normal(jax.random.key(1), (40, 3))
        >>> found = distil(
        ...     lambda w, x: x @ w, draws, x, {"mean": ob.Gaussian(draws.mean(), 0.1)}, steps=20
        ... )
        >>> found.posterior, sorted(found.scores)
        (Gaussian(6 weights, rank 0), ['mean', 'mean, as it is'])
    """
    if not starts:
        raise ValueError("there is nothing to start from: pass at least one Gaussian")
    if rank < 0:
        raise ValueError(f"got rank={rank}, expected 0 or more")
    key = key_or_first(key)
    for_split, for_extra, for_steps, for_score, for_factor = jax.random.split(key, 5)
    inputs = jax.tree.map(jnp.asarray, inputs)
    count = jax.tree.leaves(inputs)[0].shape[0]
    held = max(1, round(HELD_OUT * count))
    if count < 2:
        raise ValueError(f"got {count} inputs, expected at least two: one is held out")
    order = jax.random.permutation(for_split, count)
    out = jax.tree.map(lambda x: x[order[:held]], inputs)
    seen = jax.tree.map(lambda x: x[order[held:]], inputs)
    if extra is not None:
        # The scores need them too: on training inputs a network that was trained on them is right.
        out = joined(out, extra(jax.random.fold_in(for_extra, 1), out))
        seen = joined(seen, extra(jax.random.clone(for_extra), seen))
    rows = np.linspace(0, len(jax.tree.leaves(out)[0]) - 1, SCORED_INPUTS).astype(int)
    out = jax.tree.map(lambda x: x[np.unique(rows)], out)
    target = predictive.of_draws(apply_fn, draws.params, seen)
    target_out = predictive.of_draws(apply_fn, draws.params, out)
    floor = float(predictive.cross_entropy(target_out, target_out))
    size = min(batch_size, len(target))
    found, scores = {}, {}

    def score(name: str, q: Gaussian) -> None:
        found[name] = q
        probs = predictive.of_gaussian(apply_fn, q, out, jax.random.clone(for_score), SCORED)
        scores[name] = float(predictive.cross_entropy(target_out, probs)) - floor

    def refine(name: str, settings: Settings, variables: Any) -> None:
        score(
            name,
            _refined(apply_fn, settings, variables, seen, target, jax.random.clone(for_steps)),
        )

    def variables_of(q: Gaussian) -> Any:
        return q.mean, jax.tree.map(_log_std, q.variance()), None

    for name, start in starts.items():
        # Refining is not bound to help: what it started from stays in the race.
        score(f"{name}, as it is", start)
        if len(starts) > FINALISTS:
            heat = (max(1, steps // 4), num_samples, size, learning_rate)
            refine(f"{name}, a quarter of the steps", heat, variables_of(start))

    def heat_score(name: str) -> float:
        found = scores.get(f"{name}, a quarter of the steps", 0.0)
        return found if np.isfinite(found) else np.inf

    ranked = sorted(starts, key=heat_score)
    for name in ranked[:FINALISTS]:
        refine(name, (steps, num_samples, size, learning_rate), variables_of(starts[name]))
    finite = {name: score for name, score in scores.items() if np.isfinite(score)}
    if not finite:
        raise ArithmeticError(
            f"distilling left the real numbers from every start at learning rate {learning_rate}: "
            "take a smaller one"
        )
    best = min(finite, key=finite.__getitem__)
    if rank:
        q = found[best]
        last = (rank_steps, rank_samples, min(rank_batch_size, size), 0.5 * learning_rate)
        mean, spread, _ = variables_of(q)
        with_factor = f"{best}, rank {rank}"
        refine(with_factor, last, (mean, spread, _small_factor(for_factor, q, rank)))
        if scores[with_factor] < scores[best]:
            best = with_factor
    return Distilled(found[best], best, scores)


def _small_factor(key: jax.Array, start: Gaussian, rank: int) -> Any:
    """A factor that adds a tenth to the start's variance, in random directions."""
    tilted = jax.tree.map(lambda v: jnp.sqrt(SHARE / rank * v), start.variance())
    zero = jax.tree.map(jnp.zeros_like, start.mean)
    return Gaussian(zero, tilted).sample(key, rank).params


def _gaussian(variables: Any) -> Gaussian:
    mean, log_std, factor = variables
    return Gaussian(mean, jax.tree.map(jnp.exp, log_std), factor)


def _log_std(variance: jax.Array) -> jax.Array:
    return 0.5 * jnp.log(jnp.maximum(variance, 1e-8))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _refined(
    apply_fn: predictive.Apply,
    settings: Settings,
    variables: Any,
    inputs: Any,
    target: jax.Array,
    key: jax.Array,
) -> Gaussian:
    steps, num_samples, batch_size, learning_rate = settings
    pairs = (num_samples + 1) // 2
    optimizer = optax.adam(optax.cosine_decay_schedule(learning_rate, steps))

    def loss(variables: Any, rows: jax.Array, key: jax.Array) -> jax.Array:
        q = _gaussian(variables)
        batch = jax.tree.map(lambda x: x[rows], inputs)

        def log_probs(i: jax.Array) -> jax.Array:
            # A draw and its mirror image: what is odd in the noise cancels.
            one = q.draw(jax.random.fold_in(key, i))
            other = jax.tree.map(lambda m, x: 2 * m - x, q.mean, one)
            both = (predictive.logits(apply_fn, x, batch) for x in (one, other))
            return jnp.stack([jax.nn.log_softmax(x) for x in both])

        logs = jax.vmap(log_probs)(jnp.arange(pairs))
        mixed = jax.nn.logsumexp(logs, axis=(0, 1)) - np.log(2 * pairs)
        return -jnp.mean(jnp.sum(target[rows] * mixed, axis=-1))

    def step(i: Any, carry: Any) -> Any:
        variables, memory = carry
        for_rows, for_noise = jax.random.split(jax.random.fold_in(key, i))
        rows = jax.random.randint(for_rows, (batch_size,), 0, len(target))
        updates, memory = optimizer.update(
            jax.grad(loss)(variables, rows, for_noise), memory, variables
        )
        return optax.apply_updates(variables, updates), memory

    state = jax.lax.fori_loop(0, steps, step, (variables, optimizer.init(variables)))
    return _gaussian(state[0])
