"""The study itself, which the stages beside it join, and what they share."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from onebasin.evaluate import predict
from onebasin.infer import Normal, Problem
from onebasin.studies.compact.config import CompactConfig
from onebasin.studies.pipeline import Study
from onebasin.studies.setting import Setting, mlp_setting
from onebasin.studies.sources import sources
from onebasin.studies.step import Step

study = Study(
    "compact",
    "One Gaussian in one basin",
    "Samples of a neural network's posterior cannot be averaged while hidden units are free to "
    "trade places. Here they are brought into one basin first. How well does one Gaussian then "
    "speak for HMC, and how well does HMC speak for itself?",
    CompactConfig,
)


def setting(config: CompactConfig) -> Setting:
    """The network and its data: the same for all stages, which then share compiled programs."""
    return _setting(config.model_dump_json(), tuple(sources(config).items()))


@functools.lru_cache(maxsize=1)
def _setting(content: str, files: tuple[Any, ...]) -> Setting:
    config = CompactConfig.model_validate_json(content)
    return mlp_setting(config, config.hidden)


def problem(config: CompactConfig, place: Setting) -> Problem:
    """The posterior that all methods are after."""
    return Problem(place.net, place.train, prior=Normal(config.prior_variance**0.5))


def training(part: Any, place: Setting) -> dict[str, Any]:
    """Options of a method that trains, with batches no larger than the data."""
    return {**part.model_dump(), "batch_size": min(part.batch_size, len(place.train[0]))}


def predictive(step: Step, place: Setting, posterior: Any, inputs: Any = None) -> np.ndarray:
    """Mean probabilities on the test inputs: of all draws, or of many networks of a Gaussian."""
    inputs = place.test[0] if inputs is None else inputs
    count = step.config.fit.predictive_samples
    draws = hasattr(posterior, "mode")
    key = jax.random.key(step.config.seed)
    total, batch = 0.0, 100
    if draws:
        return np.asarray(predict(place.net.apply, posterior, inputs)).mean(axis=0)
    for first in range(0, count, batch):
        size = min(batch, count - first)
        probs = predict(
            place.net.apply,
            posterior,
            inputs,
            key=jax.random.fold_in(key, first),
            num_samples=size,
        )
        total = total + np.asarray(probs).sum(axis=0)
    return np.asarray(total) / count


def network_predictive(place: Setting, params: Any) -> np.ndarray:
    """Probabilities of one network on the test inputs."""
    return np.asarray(jax.nn.softmax(place.net.apply(params, place.test[0])))
