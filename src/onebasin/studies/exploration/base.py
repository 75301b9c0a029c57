"""The configuration of the study of populations, and what its stages share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field, model_validator

from onebasin import data
from onebasin.evaluate import predict
from onebasin.infer import Normal, Problem
from onebasin.posterior import Draws
from onebasin.studies.config import Part, StudyConfig
from onebasin.studies.errors import StudyError
from onebasin.studies.networks import NetConfig, TrainIn, load_setting
from onebasin.studies.pipeline import Study
from onebasin.studies.setting import Setting
from onebasin.studies.sources import kept
from onebasin.studies.step import Step
from onebasin.symmetry import Symmetry

METHODS = {
    "dropout": "dropout",
    "mean_field": "mean-field VI",
    "swag": "SWAG",
    "laplace": "Laplace",
    "sghmc": "SGHMC",
    "hmc": "HMC",
}
ENSEMBLE = "deep ensemble"
GROUPS = ("one mode", "several modes")
TARGETS = {"sgd": "trained target", "hmc": "HMC target"}
HMC_TARGET = "hmc-target"
SUBSTITUTES = ("permuted-pixels", "rotated")
Method = Literal["dropout", "mean_field", "swag", "laplace", "sghmc", "hmc"]


class TrainConfig(Part):
    """How networks are trained, wherever a method trains any."""

    epochs: int | None = Field(None, ge=1, description="Epochs; enough if left out.")
    batch_size: int = Field(100, ge=1, description="Examples per step.")
    learning_rate: float = Field(3e-3, gt=0, description="Of Adam, which falls by a cosine.")


class ChainConfig(Part):
    """How chains are run."""

    num_warmup: int = Field(50, ge=1, description="Draws before, thrown away.")
    max_leapfrogs: int = Field(500, ge=1, description="Most leapfrog steps of a trajectory of HMC.")
    thin: int = Field(50, ge=1, description="Minibatch steps between draws of SGHMC.")


class ToyConfig(Part):
    """The toy: MLP 2-2-1 on two classes of points in the plane."""

    num_networks: int = Field(1000, ge=10, description="Networks trained as one population.")
    points: int = Field(200, ge=2, description="Points of each of the two classes.")
    epochs: int = Field(100, ge=1, description="Epochs of training.")
    learning_rate: float = Field(0.02, gt=0, description="Of Adam.")
    shown: int = Field(1000, ge=1, description="Networks drawn in the picture, at most.")


class LargeConfig(Part):
    """A larger network, trained once, whose mass is looked at layer by layer."""

    net: NetConfig = Field(NetConfig(kind="resnet18", width=64), description="The network.")
    prior_variance: float = Field(0.1, gt=0, description="Variance of the normal prior.")
    train: TrainConfig = Field(TrainConfig(), description="Its training.")


class ExplorationConfig(StudyConfig):
    """Settings of the study `exploration`."""

    net: NetConfig = Field(NetConfig(hidden=(16,)), description="The network.")
    prior_variance: float = Field(0.1, gt=0, description="Variance of the normal prior.")
    train: TrainConfig = Field(TrainConfig(), description="Training of single networks.")
    train_in: TrainIn = None
    variational: TrainConfig = Field(
        TrainConfig(learning_rate=1e-2), description="Fitting of mean-field posteriors."
    )
    chains: ChainConfig = Field(ChainConfig(), description="Chains of SGHMC and HMC.")
    methods: tuple[Method, ...] = Field(
        ("dropout", "mean_field", "swag", "laplace", "sghmc", "hmc"),
        description="Methods besides deep ensembles, each with one mode and with several.",
    )
    num_samples: int = Field(
        100, ge=4, description="Networks of every side of a comparison: method and target alike."
    )
    num_target: int | None = Field(
        None,
        ge=1,
        description="Networks of the trained target, a multiple of num_samples x repeats; as many "
        "as that if left out. Each repeat is compared with parts of its own.",
    )
    modes: int = Field(10, ge=2, description="Modes of a method that has several.")
    repeats: int = Field(3, ge=2, description="Independent repeats of every method and target.")
    dropout_rate: float = Field(0.1, gt=0, lt=1, description="Share of units that are off.")
    laplace_probes: int | None = Field(
        None,
        ge=1,
        description="Random directions of the outputs from which Laplace's curvature is estimated, "
        "where classes are many; all outputs if left out.",
    )
    swag_snapshots: int = Field(20, ge=2, description="Networks along the way of each SWAG.")
    outside: str = Field(
        "permuted-pixels",
        description="Inputs out of distribution: a data set, or, made of the test inputs, "
        "permuted-pixels (one permutation for all) or rotated (by 90 degrees).",
    )
    kernels: tuple[Literal["gaussian", "laplace", "rational-quadratic"], ...] = Field(
        ("gaussian", "laplace"),
        min_length=1,
        description="Kernels; their discrepancies are averaged.",
    )
    scaling: Literal["min-mass", "unit-norm"] = Field(
        "min-mass", description="How scales are removed."
    )
    order: Literal["max", "mean", "median", "first"] = Field(
        "max", description="By which of its incoming weights a unit is sorted."
    )
    cost: Literal["weights", "activations", "contributions"] = Field(
        "weights", description="Cost by which networks are matched to the common reference."
    )
    resamples: int = Field(1000, ge=10, description="Resamples of a bootstrap.")
    toy: ToyConfig = Field(ToyConfig(), description="The toy.")
    large: LargeConfig | None = Field(
        None, description="A larger network whose mass is looked at too; none if left out."
    )

    @property
    def target_size(self) -> int:
        """Networks of the trained target."""
        return self.num_target or self.num_samples * self.repeats

    @model_validator(mode="after")
    def _whole_parts(self) -> Self:
        least = self.num_samples * self.repeats
        if self.target_size % least:
            raise ValueError(
                f"num_target={self.num_target} is no multiple of num_samples x repeats = {least}: "
                f"take {max(1, self.target_size // least) * least}"
            )
        return self


study = Study(
    "exploration",
    "Which posterior do approximate methods explore?",
    "A population of independently trained networks, and one of HMC draws, are the targets. How "
    "far are the samples of every method from them, in weight space, before and after symmetries "
    "are removed, and does that say how good their uncertainty is? After Laurent, Aldea and "
    "Franchi (2024); here with equal sample sizes on both sides, independent repeats, and a "
    "target by HMC.",
    ExplorationConfig,
)


def setting(config: ExplorationConfig) -> tuple[str, Setting]:
    """The network with its data, and what to call them."""
    return load_setting(config.net, config)


class World(NamedTuple):
    """The network at work: its data, problem and group, and inputs from elsewhere."""

    label: str
    setting: Setting
    problem: Problem
    training: Problem
    symmetry: Symmetry
    outside: Any


@kept(2)
def world(config: ExplorationConfig) -> World:
    """What the stages work with; kept, as compiled programs are."""
    label, found = setting(config)
    prior = Normal(config.prior_variance**0.5)
    problem, training = (
        Problem(found.trained(train_in), found.train, prior) for train_in in (None, config.train_in)
    )
    return World(label, found, problem, training, found.symmetry, _outside(config, found))


def _outside(config: ExplorationConfig, found: Setting) -> Any:
    inputs = np.asarray(found.test[0])
    if config.outside == "permuted-pixels":
        order = np.random.default_rng(config.seed).permutation(inputs[0].size)
        return jnp.asarray(inputs.reshape(len(inputs), -1)[:, order].reshape(inputs.shape))
    if config.data is not None:
        raise StudyError(
            f"got outside={config.outside!r} with data of your own, expected 'permuted-pixels': "
            "nothing is known of how they look"
        )
    if config.outside == "rotated":
        images = np.asarray(data.load(config.dataset).part("test")[0])[: len(inputs)]
        return jnp.asarray(np.rot90(images, axes=(1, 2)).reshape(inputs.shape))
    like = data.load(config.dataset).normalisation
    other = data.load(config.outside, normalise=like).part("test")[0][: len(inputs)]
    return jnp.asarray(other.reshape(len(other), *inputs.shape[1:]))


def exact(apply_fn: Any, draws: Draws, inputs: Any, link: str = "softmax") -> np.ndarray:
    """Predictions in full precision, to tell what changes them from how a device rounds."""
    with jax.default_matmul_precision("highest"):
        return np.asarray(predict(apply_fn, draws, inputs, link=link))


class Sample(NamedTuple):
    """Networks of one method, in one repeat."""

    method: str
    group: str
    repeat: int
    draws: Draws

    @property
    def label(self) -> str:
        """What tables call the method, with its number of modes."""
        return f"{self.method}, {self.group}" if self.group else self.method


def samples(step: Step) -> Iterator[Sample]:
    """All samples of all methods; each has as many networks as the others.

    A method was run from repeats x modes independent starts: the first of each repeat is its one
    mode, all of them share the networks of its several modes.
    """
    config = step.config
    for name in config.methods:
        draws = step.load("methods", name)
        for repeat in range(config.repeats):
            one = np.flatnonzero(np.asarray(draws.mode) == repeat * config.modes)
            yield Sample(METHODS[name], GROUPS[0], repeat, draws[one])
            yield Sample(METHODS[name], GROUPS[1], repeat, draws[several(config, draws, repeat)])
    for repeat, draws in enumerate(parts(step, "ensemble")):
        yield Sample(ENSEMBLE, GROUPS[1], repeat, draws)


def several(config: ExplorationConfig, draws: Draws, repeat: int) -> np.ndarray:
    """The places of the networks of several modes: of each start of a repeat equally many."""
    mode = np.asarray(draws.mode)
    shares = np.array_split(np.arange(config.num_samples), config.modes)
    found = []
    for number, share in enumerate(shares):
        own = np.flatnonzero(mode == repeat * config.modes + number)
        found.append(own[np.linspace(0, len(own) - 1, len(share)).round().astype(int)])
    return np.concatenate(found)


def targets(config: ExplorationConfig) -> dict[str, str]:
    """The targets and what they are called; that by HMC if HMC is among the methods."""
    return {name: title for name, title in TARGETS.items() if name in ("sgd", *config.methods)}


def target_parts(step: Step, name: str) -> list[Draws]:
    """One of `targets`, in independent parts."""
    return parts(step, HMC_TARGET if name == "hmc" else name)


def parts(step: Step, name: str) -> list[Draws]:
    """A population in independent parts of `num_samples`, one or more for each repeat.

    Those of a repeat are its number, and every so many behind it as there are repeats.
    """
    draws = step.load("target" if name in ("sgd", "ensemble") else "methods", name)
    return [draws[own] for own in np.arange(len(draws)).reshape(-1, step.config.num_samples)]


def stage_needs() -> tuple[str, ...]:
    """The stages that `samples` and `parts` read."""
    return ("target", "methods")
