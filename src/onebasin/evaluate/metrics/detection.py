"""How well confidence tells inputs of the training distribution from others.

The score of an example is the largest probability of its predictive (hendrycks2017baseline), high
inside the training distribution. Labels are those of scikit-learn: y_true is 1 inside, 0 outside,
and 1 is the positive class, so that `auroc(y_true, probs)` is scikit-learn's `roc_auc_score` of
y_true and the score. With positive="outside" the classes change sides and the score its sign: that
leaves the area under the ROC curve as it is, and changes the other two.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.evaluate.metrics import checks

SIDES = ("inside", "outside")


def sides(inside: Any, outside: Any) -> tuple[jax.Array, jax.Array]:
    """Labels and scores of two sets of predictions, ready for the metrics of detection.

    Args:
        inside: Probabilities for inputs of the training distribution, (example, class) or
            (sample, example, class).
        outside: The same for other inputs; the number of examples may differ.

    Returns:
        y_true, 1 inside and 0 outside, and the largest probability of each predictive.

    Example:
        >>> from onebasin import metrics
        >>> inside, outside = [[0.9, 0.1], [0.8, 0.2]], [[0.5, 0.5]]
        >>> float(metrics.auroc(*metrics.sides(inside, outside)))
        1.0
    """
    for name, probs in (("inside", inside), ("outside", outside)):
        if not np.size(probs):
            raise ValueError(
                f"there are no examples {name} the training distribution, expected some on both "
                "sides"
            )
    scores = [_score(p, name) for p, name in ((inside, "inside"), (outside, "outside"))]
    y_true = jnp.concatenate([jnp.ones(len(scores[0]), int), jnp.zeros(len(scores[1]), int)])
    return y_true, jnp.concatenate(scores)


def auroc(
    y_true: Any, probs: Any, *, positive: str = "inside", sample_weight: Any = None
) -> jax.Array:
    """The area under the ROC curve: how often an example inside scores above one outside.

    Args:
        y_true: 1 for examples inside the training distribution, 0 for those outside, (example,).
        probs: Probabilities (example, class) or (sample, example, class), of which the largest is
            the score; or scores (example,), higher inside.
        positive: Which side is the positive class; it makes no difference here.
        sample_weight: Weights of the examples, (example,).

    Example:
        >>> from onebasin import metrics
        >>> float(metrics.auroc([1, 1, 0], [[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]]))
        0.5
    """
    curve = _Curve(y_true, probs, positive, sample_weight)
    above, equal = curve.negatives_from(strictly=True), curve.negatives_from()
    return curve.mean_over_positives(1 - 0.5 * (above + equal) / curve.negatives)


def aupr(
    y_true: Any, probs: Any, *, positive: str = "inside", sample_weight: Any = None
) -> jax.Array:
    """The area under the precision-recall curve as average precision, sum_n (R_n - R_{n-1}) P_n.

    Args:
        y_true: 1 for examples inside the training distribution, 0 for those outside, (example,).
        probs: Probabilities (example, class) or (sample, example, class), of which the largest is
            the score; or scores (example,), higher inside.
        positive: Which side is the positive class, "inside" or "outside".
        sample_weight: Weights of the examples, (example,).

    Example:
        >>> from onebasin import metrics
        >>> round(float(metrics.aupr([1, 1, 0], [[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]])), 4)
        0.8333
    """
    curve = _Curve(y_true, probs, positive, sample_weight)
    right, wrong = curve.positives_from(), curve.negatives_from()
    return curve.mean_over_positives(right / jnp.where(right > 0, right + wrong, 1))


def fpr95(
    y_true: Any, probs: Any, *, positive: str = "inside", sample_weight: Any = None
) -> jax.Array:
    """The share of negatives that pass the strictest threshold that 95 % of the positives pass.

    Args:
        y_true: 1 for examples inside the training distribution, 0 for those outside, (example,).
        probs: Probabilities (example, class) or (sample, example, class), of which the largest is
            the score; or scores (example,), higher inside.
        positive: Which side is the positive class, "inside" or "outside".
        sample_weight: Weights of the examples, (example,).

    Example:
        >>> from onebasin import metrics
        >>> float(metrics.fpr95([1, 1, 0, 0], [0.9, 0.6, 0.7, 0.5]))
        0.5
    """
    curve = _Curve(y_true, probs, positive, sample_weight)
    # A share of exactly 95 % must not fail by rounding.
    passed = curve.positives_from() >= (0.95 - 1e-6) * curve.positives
    return jnp.min(jnp.where(passed, curve.negatives_from(), jnp.inf)) / curve.negatives


class _Curve:
    """Examples in order of falling score, and how many of each class score at least as high."""

    def __init__(self, y_true: Any, probs: Any, positive: str, sample_weight: Any) -> None:
        if positive not in SIDES:
            raise ValueError(f"got positive={positive!r}, expected 'inside' or 'outside'")
        score, labels = _score(probs, "probs"), jnp.asarray(y_true)
        if labels.shape != score.shape:
            raise ValueError(
                f"y_true has shape {labels.shape}, expected {score.shape}: one label per example"
            )
        if checks.is_known(labels):
            _check_labels(labels)
        weight = checks.weights(sample_weight, len(score))
        if checks.is_known(labels) and checks.is_known(weight):
            _check_weights(np.asarray(labels), np.asarray(weight))
        if positive == "outside":
            score, labels = -score, 1 - labels
        order = jnp.argsort(-score)
        falling = -score[order]
        self._positive = (labels * weight)[order]
        self._negative = ((1 - labels) * weight)[order]
        self._before = jnp.searchsorted(falling, falling, side="left")
        self._through = jnp.searchsorted(falling, falling, side="right")
        self.positives = jnp.sum(self._positive)
        self.negatives = jnp.sum(self._negative)

    def positives_from(self) -> jax.Array:
        """For each example the positives that score at least as high."""
        return _totals(self._positive)[self._through]

    def negatives_from(self, *, strictly: bool = False) -> jax.Array:
        """For each example the negatives that score at least as high, or higher."""
        return _totals(self._negative)[self._before if strictly else self._through]

    def mean_over_positives(self, values: jax.Array) -> jax.Array:
        return jnp.sum(self._positive * values) / self.positives


def _totals(values: jax.Array) -> jax.Array:
    return jnp.concatenate([jnp.zeros(1, values.dtype), jnp.cumsum(values)])


def _score(probs: Any, name: str) -> jax.Array:
    array = jnp.asarray(probs)
    if array.ndim == 1:
        if checks.is_known(array) and not np.isfinite(np.asarray(array)).all():
            raise ValueError(f"the scores in {name} hold NaN or infinite values")
        return array
    return jnp.max(checks.predictive(array, name), axis=-1)


def _check_weights(labels: np.ndarray, weight: np.ndarray) -> None:
    for label, name in ((1, "inside"), (0, "outside")):
        if not np.sum(weight[labels == label]) > 0:
            raise ValueError(
                f"the sample_weight of the examples {name} the training distribution sums to 0 or "
                "less, expected a positive sum on both sides"
            )


def _check_labels(labels: jax.Array) -> None:
    known = np.asarray(labels)
    if not np.isin(known, (0, 1)).all():
        raise ValueError("y_true holds other values than 0 (outside) and 1 (inside)")
    for label, name in ((1, "inside"), (0, "outside")):
        if not np.any(known == label):
            raise ValueError(
                f"there are no examples {name} the training distribution (no label {label} in "
                "y_true), expected some on both sides"
            )
