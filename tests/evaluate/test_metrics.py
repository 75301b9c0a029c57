from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk

from onebasin import metrics

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 4, 300)
PROBS = RNG.dirichlet(np.ones(4), 300).astype(np.float32)
SAMPLES = RNG.dirichlet(np.ones(4), (6, 300)).astype(np.float32)
WEIGHT = RNG.integers(0, 4, 300).astype(np.float32)
INSIDE = (RNG.random(300) < 0.4).astype(int)
# Few distinct scores: ties are where such metrics go wrong.
SCORE = (np.round(8 * (RNG.random(300) + 0.3 * INSIDE)) / 8).astype(np.float32)


def binned(y: Any, probs: Any, bins: Any, weight: Any) -> float:
    """Calibration error of a binning, bin by bin."""
    confidence, right = probs.max(-1), probs.argmax(-1) == y
    total = 0.0
    for b in np.unique(bins):
        at = bins == b
        total += abs(np.sum(weight[at] * right[at]) - np.sum(weight[at] * confidence[at]))
    return total / weight.sum()


def one_hot(y: Any) -> Any:
    return np.eye(4)[y]


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (metrics.accuracy, lambda y, p, w: sk.accuracy_score(y, p.argmax(-1), sample_weight=w)),
        (metrics.nll, lambda y, p, w: sk.log_loss(y, p, sample_weight=w)),
        (metrics.brier, lambda y, p, w: np.average(((p - one_hot(y)) ** 2).sum(-1), weights=w)),
        (
            metrics.ece,
            lambda y, p, w: binned(
                y, p, np.ceil(p.max(-1) * 15), np.ones(len(y)) if w is None else w
            ),
        ),
    ],
)
def test_scores_are_those_of_scikit_learn(ours: Any, theirs: Any, weight: Any) -> None:
    np.testing.assert_allclose(ours(Y, PROBS, sample_weight=weight), theirs(Y, PROBS, weight), 2e-5)
    averaged = SAMPLES.mean(0)
    np.testing.assert_allclose(
        jax.jit(ours)(Y, SAMPLES, sample_weight=weight), theirs(Y, averaged, weight), 2e-5
    )


def test_adaptive_bins_hold_equally_many() -> None:
    order = np.argsort(PROBS.max(-1), kind="stable")
    bins = np.empty(300, int)
    bins[order] = np.arange(300) // 20
    expected = binned(Y, PROBS, bins, np.ones(300))
    np.testing.assert_allclose(metrics.adaptive_ece(Y, PROBS, num_bins=15), expected, 1e-5)
    # Weights count examples: three times an example is three examples.
    times = WEIGHT.astype(int)
    repeated = metrics.ece(np.repeat(Y, times), np.repeat(PROBS, times, 0))
    np.testing.assert_allclose(metrics.ece(Y, PROBS, sample_weight=WEIGHT), repeated, 1e-5)


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("positive", ["inside", "outside"])
def test_detection_is_that_of_scikit_learn(positive: str, weight: Any) -> None:
    flip = positive == "outside"
    y, score = (1 - INSIDE, -SCORE) if flip else (INSIDE, SCORE)
    false, true, _ = sk.roc_curve(y, score, sample_weight=weight, drop_intermediate=False)
    expected = {
        metrics.auroc: sk.roc_auc_score(y, score, sample_weight=weight),
        metrics.aupr: sk.average_precision_score(y, score, sample_weight=weight),
        metrics.fpr95: false[np.argmax(true >= 0.95)],
    }
    for metric, value in expected.items():
        found = metric(INSIDE, SCORE, positive=positive, sample_weight=weight)
        np.testing.assert_allclose(found, value, rtol=1e-5)


def test_the_score_is_the_largest_probability() -> None:
    y, score = metrics.sides(PROBS[:100], SAMPLES[:, 100:])
    np.testing.assert_allclose(score[:100], PROBS[:100].max(-1))
    np.testing.assert_allclose(score[100:], SAMPLES[:, 100:].mean(0).max(-1), 1e-6)
    expected = sk.roc_auc_score(y, score)
    np.testing.assert_allclose(metrics.auroc(y, score), expected, 1e-5)
    np.testing.assert_allclose(jax.jit(metrics.auroc)(INSIDE, PROBS), metrics.auroc(INSIDE, PROBS))


def test_spread_by_hand() -> None:
    pairs = [(i, j) for i in range(6) for j in range(i)]
    chosen = SAMPLES.argmax(-1)
    differ = np.mean([np.mean(chosen[i] != chosen[j]) for i, j in pairs])
    np.testing.assert_allclose(metrics.disagreement(SAMPLES), differ, 1e-5)
    apart = np.mean([metrics.total_variation(SAMPLES[i], SAMPLES[j]) for i, j in pairs])
    np.testing.assert_allclose(metrics.diversity(SAMPLES), apart, 1e-5)
    collapse = metrics.functional_collapse(SAMPLES)
    for i, j in pairs[:4]:
        expected = metrics.mutual_information(SAMPLES[[i, j]])
        np.testing.assert_allclose(collapse[i, j], expected, 1e-4)
    np.testing.assert_allclose(np.diag(collapse), 0, atol=1e-6)
    known = metrics.entropy(PROBS, average=False)
    np.testing.assert_allclose(known, -np.sum(PROBS * np.log(PROBS), -1), 1e-4)


seeds = st.integers(0, 2**31 - 1)
sharpness = st.sampled_from([0.01, 0.3, 1.0, 10.0])


def probabilities(seed: int, sharp: float, shape: tuple[int, ...]) -> Any:
    drawn = np.random.default_rng(seed).gamma(sharp, size=(*shape, 3)) + 1e-30
    return (drawn / drawn.sum(-1, keepdims=True)).astype(np.float32)


@given(seeds, sharpness)
def test_distances_obey_their_bounds_and_symmetries(seed: int, sharp: float) -> None:
    p, q, r = probabilities(seed, sharp, (3, 7))
    tv = metrics.total_variation
    assert 0 <= tv(p, q) <= 1 + 1e-6
    assert tv(p, p) == 0
    assert tv(p, q) == tv(q, p)
    assert tv(p, r) <= tv(p, q) + tv(q, r) + 1e-6
    assert 0 <= metrics.agreement(p, q) <= 1
    assert metrics.agreement(p, p) == 1
    assert metrics.agreement(p, q) == metrics.agreement(q, p)
    classes = np.random.default_rng(seed).permutation(3)
    np.testing.assert_allclose(tv(p[:, classes], q[:, classes]), tv(p, q), atol=1e-6)


@given(seeds, sharpness)
def test_mutual_information_obeys_its_bounds(seed: int, sharp: float) -> None:
    probs = probabilities(seed, sharp, (5, 7))
    found = metrics.mutual_information(probs)
    assert 0 <= found <= min(np.log(3), metrics.entropy(probs)) + 1e-5
    shuffled = probs[np.random.default_rng(seed).permutation(5)]
    np.testing.assert_allclose(metrics.mutual_information(shuffled), found, atol=1e-5)
    np.testing.assert_allclose(metrics.mutual_information(probs[[0, 0]]), 0, atol=1e-5)


def test_bootstrap_covers() -> None:
    """The interval of a mean has the width that the normal law gives it."""
    found = metrics.bootstrap(metrics.accuracy, Y, PROBS, num_resamples=500)
    spread = np.sqrt(found.value * (1 - found.value) / 300)
    np.testing.assert_allclose(found.high - found.low, 2 * 1.96 * spread, rtol=0.15)
    again = metrics.bootstrap(metrics.accuracy, Y, PROBS, num_resamples=500)
    assert (found.low, found.high) == (again.low, again.high)
    for metric, arguments, options in (
        (metrics.mutual_information, (SAMPLES,), {}),
        (metrics.adaptive_ece, (Y, SAMPLES), {"num_bins": 5}),
        (metrics.aupr, (INSIDE, SCORE), {"positive": "outside"}),
    ):
        found = metrics.bootstrap(metric, *arguments, num_resamples=100, **options)
        assert found.low < found.high
        assert str(found).count("0.") == 3


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: metrics.accuracy(Y, 2 * PROBS), "no probabilities"),
        (lambda: metrics.nll(Y, np.log(PROBS)), "apply softmax"),
        (lambda: metrics.ece(Y, np.where(PROBS > 0.9, np.nan, PROBS)), "NaN"),
        (lambda: metrics.accuracy(Y[:9], PROBS), r"\(300,\)"),
        (lambda: metrics.accuracy(Y + 1, PROBS), "classes from 0 to 3"),
        (lambda: metrics.accuracy(Y, PROBS[0]), r"expected \(example, class\)"),
        (lambda: metrics.agreement(PROBS, PROBS[:9]), "same inputs"),
        (lambda: metrics.mutual_information(PROBS), "of each sample"),
        (lambda: metrics.disagreement(SAMPLES[:1]), "at least 2"),
        (lambda: metrics.entropy(PROBS[:0]), "nothing to measure"),
        (lambda: metrics.auroc(np.ones(300, int), PROBS), "no examples outside"),
        (lambda: metrics.sides(PROBS, PROBS[:0]), "no examples outside"),
        (lambda: metrics.fpr95(Y, PROBS), "0 .outside. and 1"),
        (lambda: metrics.aupr(INSIDE, PROBS, positive="in"), "'inside' or 'outside'"),
        (lambda: metrics.brier(Y, PROBS, sample_weight=[1.0]), "one per example"),
        (lambda: metrics.brier(Y, PROBS, sample_weight=np.zeros(300)), "sums to 0, expected"),
        (lambda: metrics.ece(Y, PROBS, sample_weight=np.zeros(300)), "at least one example"),
        (lambda: metrics.entropy(PROBS, sample_weight=np.zeros(300)), "sums to 0, expected"),
        (lambda: metrics.nll(Y, PROBS, sample_weight=np.full(300, np.nan)), "sums to nan"),
        (lambda: metrics.auroc(INSIDE, SCORE, sample_weight=INSIDE), "examples outside"),
        (lambda: metrics.ece(Y, PROBS, num_bins=0), "at least one bin"),
        (lambda: metrics.bootstrap(metrics.nll, Y, PROBS, level=1), "between 0 and 1"),
    ],
)
def test_bad_input_is_said(call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        call()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", [int, bool])
def test_certain_predictions_may_be_integers_or_flags(kind: type) -> None:
    certain = np.eye(4)[np.argmax(PROBS, axis=-1)]
    for metric in (metrics.accuracy, metrics.nll, metrics.brier, metrics.ece):
        expected = metric(Y, certain.astype(np.float32))
        np.testing.assert_allclose(metric(Y, certain.astype(kind)), expected, rtol=1e-6)
    samples = np.stack([certain, certain[:, ::-1]])
    expected = metrics.mutual_information(samples.astype(np.float32))
    np.testing.assert_allclose(metrics.mutual_information(samples.astype(kind)), expected)


def test_metrics_compile_without_looking_at_values() -> None:
    every = jax.jit(lambda y, p: (metrics.nll(y, p), metrics.brier(y, p), metrics.entropy(p)))
    assert all(jnp.isfinite(x) for x in every(Y, PROBS))


def test_labels_may_be_constants_of_a_compiled_program() -> None:
    labels = jnp.array([0, 1, 1])
    inside = jnp.array([[0.5, 0.5], [0.2, 0.8], [0.9, 0.1]])

    @jax.jit
    def both(logits):
        probs = jax.nn.softmax(logits)
        return metrics.accuracy(labels, probs), metrics.total_variation(inside, probs)

    found, distance = both(jnp.log(inside))
    assert found == pytest.approx(2 / 3)
    assert distance == pytest.approx(0, abs=1e-6)


def test_bootstrap_takes_weights_of_examples() -> None:
    twice = np.concatenate([Y, Y]), np.concatenate([PROBS, PROBS[:, ::-1]])
    weight = np.concatenate([np.ones(len(Y)), np.zeros(len(Y))])
    found = metrics.bootstrap(metrics.accuracy, *twice, sample_weight=weight)
    alone = metrics.bootstrap(metrics.accuracy, Y, PROBS, sample_weight=None)
    assert found.value == pytest.approx(float(alone.value), abs=1e-6)
    assert found.low == pytest.approx(float(alone.low), abs=0.05)
