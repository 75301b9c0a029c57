"""Losses of networks and of posteriors on data: nats of the predictive, and errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.align.stream import Batches
from onebasin.posterior import Draws, Gaussian, Mixture
from onebasin.symmetry.keys import key_or_first

NUM_SAMPLES = 128
TEMPERATURES = (0.05, 20.0)
# A best temperature below is that of the bound.
COLDEST = 1.01 * TEMPERATURES[0]


class Split(NamedTuple):
    """One part of the data: inputs in batches, labels (example,)."""

    inputs: Batches
    labels: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class PredictiveLoss:
    """Loss and error on one or more data sets at once; made by `losses` and `marginal_loss`.

    For a network the loss is -mean log p(y | x, params). For a Gaussian or a mixture it is
    marginalised: -mean log E[p(y | x, params)], the expectation over `num_samples` draws (for a
    mixture, over as many from each component); for `Draws` it is over all of them.
    """

    splits: dict[str, Split]
    apply_fn: Callable[[Any, Any], Any] = dataclasses.field(metadata={"static": True})
    num_samples: int = dataclasses.field(metadata={"static": True})
    classes: int = dataclasses.field(default=0, metadata={"static": True})

    def __call__(self, posterior: Any, key: jax.Array | None = None) -> dict[str, jax.Array]:
        """Losses in nats and error rates, by name.

        Args:
            posterior: Parameters, a `Gaussian`, a `Mixture` or `Draws`.
            key: Random key of the draws; `jax.random.key(0)` by default.
        """
        return self.scores(self.log_predictive(posterior, key))

    def log_predictive(
        self, posterior: Any, key: jax.Array | None = None, num_samples: int | None = None
    ) -> dict[str, jax.Array]:
        """Log probabilities of the predictive, (example, class), by data set."""
        if isinstance(posterior, Mixture):
            # The same key for all: what they have in common cancels in comparisons.
            parts = [self.log_predictive(c, key, num_samples) for c in posterior.components]
            weights = jnp.log(posterior.weights)
            return jax.tree.map(
                lambda *p: jax.nn.logsumexp(jnp.stack(p, -1) + weights, axis=-1), *parts
            )
        if isinstance(posterior, Draws):
            return self._averaged(lambda params: params, posterior.params, len(posterior))
        if not isinstance(posterior, Gaussian):
            return self._of_network(posterior)
        count = self.num_samples if num_samples is None else num_samples
        keys = jax.random.split(key_or_first(key), count)
        return self._averaged(posterior.draw, keys, count)

    def _averaged(
        self, network: Callable[[Any], Any], over: Any, count: int
    ) -> dict[str, jax.Array]:
        """The log of the mean probability of networks, one for each entry of what they are over."""

        def log_probs(entry: Any) -> dict[str, jax.Array]:
            return self._of_network(network(entry), one_of=count)

        def add(total: dict[str, jax.Array], entry: Any) -> tuple[dict[str, jax.Array], None]:
            return jax.tree.map(jnp.logaddexp, total, log_probs(entry)), None

        shapes = jax.eval_shape(lambda o: log_probs(jax.tree.map(lambda x: x[0], o)), over)
        empty = jax.tree.map(lambda s: jnp.full(s.shape, -jnp.inf, s.dtype), shapes)
        total, _ = jax.lax.scan(add, empty, over)
        return jax.tree.map(lambda x: x - np.log(count), total)

    def scores(self, log_probs: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """Loss and error of log probabilities."""
        found = {}
        for name, split in self.splits.items():
            self._check_classes(log_probs[name].shape[-1])
            found[f"{name} loss".strip()] = nll(log_probs[name], split.labels)
            wrong = jnp.argmax(log_probs[name], axis=-1) != split.labels
            found[f"{name} error".strip()] = jnp.mean(wrong, dtype=jnp.float32)
        return found

    def calibrated(self, log_probs: dict[str, jax.Array]) -> tuple[dict[str, jax.Array], jax.Array]:
        """Losses at the temperature that is best on training data, and that temperature.

        Where all training examples are classified rightly, the best is the coldest there is: it
        tells nothing of confidence, and the loss stays as it is, at temperature 1.
        """
        name = next(iter(self.splits)) if len(self.splits) == 1 else "train"
        best = best_temperature(log_probs[name], self.splits[name].labels)
        temperature = jnp.where(best < COLDEST, 1.0, best)
        losses = {
            f"{name} loss".strip(): nll(log_probs[name] / temperature, split.labels)
            for name, split in self.splits.items()
        }
        return losses, temperature

    def _check_classes(self, outputs: int) -> None:
        if outputs < self.classes:
            raise ValueError(
                f"labels run up to {self.classes - 1}, and the network has {outputs} outputs: "
                f"expected 0 to {outputs - 1}"
            )

    def _of_network(self, params: Any, one_of: int = 1) -> dict[str, jax.Array]:
        def log_probs(inputs: Any) -> jax.Array:
            return jax.nn.log_softmax(self.apply_fn(params, inputs))

        def of_split(split: Split) -> jax.Array:
            # A gradient holds what one network does to one batch, and does it once more for each.
            many = one_of > 1 or split.inputs.num_batches > 1
            return split.inputs.map(jax.checkpoint(log_probs) if many else log_probs)

        return {name: of_split(split) for name, split in self.splits.items()}


def losses(
    apply_fn: Callable[[Any, Any], Any],
    train: tuple[Any, Any],
    test: tuple[Any, Any] | None = None,
    *,
    batch_size: int = 1000,
    num_samples: int = NUM_SAMPLES,
) -> PredictiveLoss:
    """A loss for `barrier`, `plane` and the like: nats and error rate, train and test at once.

    Args:
        apply_fn: The model, `apply_fn(params, inputs) -> logits (example, class)`.
        train: Training inputs and integer labels; the temperature of a calibrated barrier is
            chosen on them.
        test: Test inputs and labels, if any.
        batch_size: Examples per forward pass; memory grows with it.
        num_samples: Draws of a Gaussian over which the predictive is averaged.

    Returns:
        A function of parameters or a posterior (and a key) to a dictionary with "train loss",
        "train error", "test loss" and "test error".

    Example:
        >>> import jax.numpy as jnp
        >>> from onebasin.align.predictive import losses
        >>> x, y = jnp.array([[1.0], [-1.0]]), jnp.array([0, 1])
        >>> loss = losses(lambda w, x: x * w, train=(x, y))
        >>> {k: round(float(v), 3) for k, v in loss(jnp.array([2.0, 0.0])).items()}
        {'train loss': 0.127, 'train error': 0.0}
    """
    splits = {"train": _split("train", train, batch_size)}
    if test is not None:
        splits["test"] = _split("test", test, batch_size)
    return _loss(apply_fn, splits, num_samples)


def marginal_loss(
    apply_fn: Callable[[Any, Any], Any],
    inputs: Any,
    labels: Any,
    num_samples: int = NUM_SAMPLES,
    *,
    batch_size: int = 1000,
) -> PredictiveLoss:
    """The marginalised loss of a posterior on one data set: -mean log E[p(y | x, params)].

    Args:
        apply_fn: The model, `apply_fn(params, inputs) -> logits (example, class)`.
        inputs: Inputs, leading axis the example.
        labels: Integer labels.
        num_samples: Draws over which the predictive is averaged.
        batch_size: Examples per forward pass.

    Returns:
        A function of a posterior (and a key) to {"loss": nats, "error": rate}.
    """
    return _loss(apply_fn, {"": _split("inputs", (inputs, labels), batch_size)}, num_samples)


def nll(log_probs: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean negative log likelihood in nats of logits (example, class)."""
    log_probs = jax.nn.log_softmax(log_probs)
    return -jnp.mean(jnp.take_along_axis(log_probs, labels[:, None], axis=-1))


def best_temperature(log_probs: jax.Array, labels: jax.Array) -> jax.Array:
    """The temperature T within TEMPERATURES that minimises the loss of log_probs / T.

    The loss is convex in 1 / T, hence unimodal in log T: golden section to a relative 1e-5.
    """
    ratio = (np.sqrt(5) - 1) / 2

    def loss(log_t: jax.Array) -> jax.Array:
        return nll(log_probs / jnp.exp(log_t), labels)

    def step(_: int, bounds: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        low, left, right, high, loss_left, loss_right = bounds
        lower = loss_left <= loss_right
        low, high = jnp.where(lower, low, left), jnp.where(lower, right, high)
        new = jnp.where(lower, high - ratio * (high - low), low + ratio * (high - low))
        loss_new = loss(new)
        return (
            low,
            jnp.where(lower, new, right),
            jnp.where(lower, left, new),
            high,
            jnp.where(lower, loss_new, loss_right),
            jnp.where(lower, loss_left, loss_new),
        )

    low, high = (jnp.asarray(np.log(x), log_probs.dtype) for x in TEMPERATURES)
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    bounds = jax.lax.fori_loop(0, 28, step, (low, left, right, high, loss(left), loss(right)))
    return jnp.exp((bounds[0] + bounds[3]) / 2)


def _loss(apply_fn: Any, splits: dict[str, Split], num_samples: int) -> PredictiveLoss:
    if num_samples < 1:
        raise ValueError(f"got num_samples={num_samples}, expected at least one draw")
    known = [s.labels for s in splits.values() if not isinstance(s.labels, jax.core.Tracer)]
    classes = 1 + max((int(labels.max()) for labels in known), default=-1)
    return PredictiveLoss(splits, apply_fn, num_samples, classes)


def _split(name: str, data: tuple[Any, Any], batch_size: int) -> Split:
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise ValueError(
            f"{name} is a {type(data).__name__}, expected a pair (inputs, labels) of arrays"
        )
    inputs, labels = Batches.of(data[0], batch_size), jnp.asarray(data[1])
    if labels.shape != (inputs.num_examples,) or not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(
            f"{name} has labels of shape {labels.shape} and type {labels.dtype}, expected integer "
            f"classes ({inputs.num_examples},); for other targets pass a loss_fn of your own"
        )
    if not isinstance(labels, jax.core.Tracer) and int(labels.min()) < 0:
        raise ValueError(f"{name} has a label {int(labels.min())}, expected classes from 0 on")
    return Split(inputs, labels)
