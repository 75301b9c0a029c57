"""The configuration of the study of variational posteriors, and what its stages share."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
from pydantic import Field

from onebasin import infer
from onebasin.align import align, losses
from onebasin.align.predictive import PredictiveLoss
from onebasin.infer import Normal, Problem
from onebasin.posterior import Gaussian
from onebasin.studies.config import Part, StudyConfig
from onebasin.studies.networks import NetConfig, TrainIn, load_setting
from onebasin.studies.pipeline import Study
from onebasin.studies.results import Cell, interval
from onebasin.studies.setting import Setting
from onebasin.studies.sources import kept
from onebasin.studies.step import Step
from onebasin.symmetry import Symmetry

COSTS = {
    "none": "none",
    "weights": "means only",
    "wasserstein": "Wasserstein-2",
    "kl-forward": "KL, forward",
    "kl-reverse": "KL, reverse",
    "kl-mean": "KL, mean term only",
}
PATHS = {
    "geodesic": "W2 geodesic (as published)",
    "independent": "independent coupling",
    "unit-norm": "unit-norm means",
    "unit-norm-independent": "unit-norm means, independent coupling",
    "mixture": "mixture (control)",
}
BEND = "trained bend (last resort)"
SCORES = ("train loss", "test loss", "train error", "test error")


class FitConfig(NetConfig):
    """A network and how its posteriors are fitted."""

    dataset: str | None = Field(None, description="Its data set; the study's if left out.")
    paths: bool = Field(
        True, description="Whether paths are compared on it; costs of alignment always are."
    )
    prior_variance: float = Field(0.01, gt=0, description="Variance of the normal prior.")
    epochs: int | None = Field(None, ge=1, description="Epochs of fitting; enough if left out.")
    batch_size: int = Field(100, ge=1, description="Examples per step.")
    learning_rate: float = Field(1e-2, gt=0, description="Of Adam, which falls by a cosine.")
    init_std: float = Field(0.01, gt=0, description="Standard deviation that fits start from.")


class BendConfig(Part):
    """The bend that is trained where no straight way is low."""

    steps: int = Field(300, ge=0, description="Steps of training; 0 leaves the bend out.")
    batch_size: int = Field(100, ge=1, description="Examples per step.")
    learning_rate: float = Field(3e-3, gt=0, description="Of Adam.")


class SweepConfig(Part):
    """What is varied around the first network; the rest stays as it is there."""

    widths: tuple[int, ...] = Field((16, 64), description="Widths of every hidden layer, or stage.")
    prior_variances: tuple[float, ...] = Field((0.01, 0.1), description="Variances of the prior.")
    temperatures: tuple[float, ...] = Field((0.1, 1.0), description="Temperatures of the target.")
    num_pairs: int = Field(2, ge=1, description="Pairs of solutions for each value.")


class TimingConfig(Part):
    """Alignments that are timed."""

    widths: tuple[int, ...] = Field((32, 64, 128), description="Widths of every layer.")
    epochs: int = Field(
        5, ge=0, description="Epochs of training before; 0 for networks as they are initialised."
    )
    repeats: int = Field(3, ge=1, description="Pairs that are aligned for each width.")


class LadderConfig(Part):
    """The ladder of searches, from the published one down."""

    net: int = Field(-1, description="Which network, by its place in `nets`; the last by default.")
    num_pairs: int = Field(1, ge=1, description="Pairs of solutions, at most as many as there are.")
    examples: int = Field(500, ge=1, description="Training examples that candidates are judged by.")
    num_samples: int = Field(8, ge=1, description="Draws that candidates are judged by.")
    restarts: int = Field(0, ge=0, description="Random starts besides the eight there always are.")
    refine: int = Field(300, ge=0, description="Steps of straight-through refinement at the end.")
    path: str = Field(
        "geodesic", description="The path on which candidates are judged half way, and refined."
    )


class VariationalConfig(StudyConfig):
    """Settings of the study `variational`."""

    nets: tuple[FitConfig, ...] = Field(
        (FitConfig(hidden=(64, 64)),), min_length=1, description="The networks and their fits."
    )
    train_in: TrainIn = None
    num_pairs: int = Field(3, ge=2, description="Independent pairs of solutions of each network.")
    num_samples: int = Field(
        128, ge=1, description="Draws over which a marginalised loss is averaged."
    )
    points: int = Field(11, ge=3, description="Points along a path, both ends included.")
    loss_examples: int | None = Field(
        None, ge=1, description="Training examples that losses are taken on; all if left out."
    )
    costs: tuple[str, ...] = Field(tuple(COSTS), description="Costs of alignment to compare.")
    paths: tuple[str, ...] = Field(tuple(PATHS), description="Paths to compare.")
    bend: BendConfig = Field(BendConfig(), description="The trained bend.")
    sweeps: SweepConfig = Field(SweepConfig(), description="Width, prior and temperature.")
    plane: int = Field(15, ge=2, description="Points along each side of the plane.")
    timing: TimingConfig = Field(TimingConfig(), description="Seconds of alignment.")
    ladder: LadderConfig = Field(LadderConfig(), description="The thorough search.")


study = Study(
    "variational",
    "Variational posteriors modulo permutation",
    "Two mean-field posteriors of one network lie in different basins until one of them is "
    "permuted. Which cost finds the permutation, how high is the barrier that is left, and on "
    "which path? After Rossi, Singh and Hannagan (2023), who published no barrier heights: the "
    "published method is run here beside the others.",
    VariationalConfig,
)


def setting(config: VariationalConfig, number: int = 0) -> tuple[str, Setting]:
    """One of the networks with its data, and what to call them."""
    net = config.nets[number]
    return load_setting(net, config, net.dataset)


def numbers(config: VariationalConfig) -> range:
    """The places of the networks; a model of the user's own is the only one."""
    return range(len(config.nets) if config.model is None else 1)


def widths(config: VariationalConfig, wanted: tuple[int, ...]) -> tuple[int, ...]:
    """The widths to go through; none of a user's own model, which has the width that it has."""
    return wanted if config.model is None else ()


class Case(NamedTuple):
    """One network at work: its data, group and loss."""

    label: str
    fit: FitConfig
    setting: Setting
    symmetry: Symmetry
    loss: PredictiveLoss

    @property
    def batch(self) -> Any:
        """Some training inputs, for costs that look at data."""
        return self.setting.train[0][:500]

    def problem(
        self,
        temperature: float = 1.0,
        variance: float | None = None,
        train_in: str | None = None,
    ) -> Problem:
        """The problem that the fits solve, in the precision in which they do."""
        scale = (variance or self.fit.prior_variance) ** 0.5
        net = self.setting.trained(train_in)
        return Problem(net, self.setting.train, Normal(scale), temperature=temperature)


@kept(16)
def case_of(config: VariationalConfig, number: int = 0, fit: FitConfig | None = None) -> Case:
    """A network of the configuration, or a variant of it; kept, as its compiled programs are."""
    fit = fit or config.nets[number]
    label, found = load_setting(fit, config, fit.dataset)
    inputs, labels = found.train
    count = config.loss_examples
    loss = losses(
        found.net.apply,
        (inputs[:count], labels[:count]),
        found.test,
        num_samples=config.num_samples,
        batch_size=_batch_size(fit, config),
    )
    return Case(label, fit, found, found.symmetry, loss)


def _batch_size(fit: FitConfig, config: VariationalConfig) -> int:
    """Examples per forward pass: many for small networks where passes, not products, take time."""
    small = fit.kind == "mlp" and config.model is None and jax.default_backend() != "cpu"
    return 10_000 if small else 1000


def widened(fit: FitConfig, width: int) -> FitConfig:
    """The network with another width in every layer; 0 leaves it."""
    if not width:
        return fit
    change = {"hidden": (width,) * len(fit.hidden)} if fit.kind == "mlp" else {"width": width}
    return fit.model_copy(update=change)


def fit_pairs(
    step: Step, key: jax.Array, case: Case, name: str, pairs: int, **problem: Any
) -> list[tuple[Gaussian, Gaussian]]:
    """Independent mean-field solutions, two by two."""
    fit = case.fit
    found = infer.mean_field(
        key,
        case.problem(**problem, train_in=step.config.train_in),
        num_networks=2 * pairs,
        epochs=fit.epochs,
        batch_size=min(fit.batch_size, len(case.setting.train[1])),
        learning_rate=fit.learning_rate,
        init_std=fit.init_std,
        memory=step.config.memory,
        progress=step.progress,
        engine=step.engine,
        run=step.work / name,
    )
    return paired(found)


def paired(solutions: Any) -> list[tuple[Gaussian, Gaussian]]:
    """A mixture's components, two by two."""
    components = solutions.components
    return list(zip(components[::2], components[1::2], strict=True))


def aligned(case: Case, cost: str, a: Gaussian, b: Gaussian, **options: Any) -> Any:
    """The alignment of b to a by a cost."""
    net = case.setting.net
    return align(
        case.symmetry, b, to=a, cost=cost, apply_fn=net.apply, inputs=case.batch, **options
    )


def over_pairs(values: list[Any], pick: Any) -> Cell:
    """The mean over pairs of what is picked from each, with Student's interval."""
    return interval([float(pick(value)) for value in values])


@functools.lru_cache(maxsize=8)
def bend_loss(apply_fn: Any) -> Any:
    """The mean loss of a batch, for a bend; kept, so that equal calls share programs."""

    def loss(params: Any, batch: Any) -> jax.Array:
        inputs, labels = batch
        logs = jax.nn.log_softmax(apply_fn(params, inputs))
        return -jax.numpy.mean(jax.numpy.take_along_axis(logs, labels[:, None], axis=1))

    return loss
