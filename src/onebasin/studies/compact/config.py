"""What the study of the compact posterior is told."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from onebasin.studies.config import Part, StudyConfig


class Hmc(Part):
    """Hamiltonian Monte Carlo."""

    num_chains: int = Field(8, ge=2, description="Chains; the floor needs two.")
    num_samples: int = Field(40, ge=4, description="Draws kept per chain.")
    num_warmup: int = Field(50, ge=0, description="Draws thrown away, which adapt the step size.")
    step_size: float | None = Field(None, gt=0, description="Step size; adapted if left out.")
    trajectory_length: float | None = Field(
        None, gt=0, description="Length of a trajectory; pi times the prior's std / 2 if left out."
    )
    max_leapfrogs: int = Field(100, ge=1, description="Most leapfrogs per trajectory.")


class Ensemble(Part):
    """MAP networks."""

    num_networks: int = Field(5, ge=2, description="Networks.")
    epochs: int = Field(50, ge=1, description="Passes over the data.")
    batch_size: int = Field(100, ge=1, description="Examples per step.")
    learning_rate: float = Field(3e-3, gt=0, description="Of Adam.")


class Vi(Part):
    """Mean-field variational inference."""

    epochs: int = Field(150, ge=1, description="Passes over the data.")
    batch_size: int = Field(200, ge=1, description="Examples per step.")
    learning_rate: float = Field(1e-2, gt=0, description="Of Adam.")
    init_std: float = Field(0.01, gt=0, description="Standard deviations at the start.")
    reparameterisation: Literal["local", "weights"] = Field(
        "local", description="Noise of its own for every example, or one draw of weights a step."
    )


class Chains(Part):
    """SGHMC and SWAG, started at the members of the ensemble, for R-hat across them."""

    num_samples: int = Field(40, ge=8, description="Draws kept per chain and per SWAG mode.")
    num_warmup: int = Field(20, ge=0, description="Draws of SGHMC thrown away.")
    thin: int = Field(20, ge=1, description="Steps of SGHMC between draws.")
    epochs: int = Field(
        10, ge=1, description="Epochs of training before SWAG takes its snapshots, one per epoch."
    )


class Fit(Part):
    """The compact fits."""

    cost: (
        Literal["weights", "activations", "correlation", "contributions", "preactivations"] | None
    ) = Field(None, description="What aligns the draws; chosen on held-out draws if left out.")
    num_starts: int = Field(4, ge=1, description="Draws from which alignment is started.")
    steps: int = Field(2000, ge=1, description="Steps of distilling.")
    num_samples: int = Field(16, ge=1, description="Networks per step of distilling.")
    batch_size: int = Field(200, ge=1, description="Inputs per step of distilling.")
    learning_rate: float = Field(3e-3, gt=0, description="Of Adam in distilling.")
    copies: int = Field(1, ge=1, description="Mixtures of training inputs, per training input.")
    shift: int = Field(
        0, ge=0, description="Pixels by which training images are moved, once each; 0 for none."
    )
    rank: int = Field(0, ge=0, description="Rank of the distilled Gaussian beside its diagonal.")
    rank_steps: int = Field(3000, ge=1, description="Steps with the low-rank part.")
    rank_samples: int = Field(512, ge=1, description="Networks per step with the low-rank part.")
    rank_batch_size: int = Field(32, ge=1, description="Inputs per step with the low-rank part.")
    judges: int = Field(8, ge=1, description="Chains that judge in turn; at most all.")
    predictive_samples: int = Field(500, ge=1, description="Networks drawn from each Gaussian.")


class Dynamics(Part):
    """The barrier between two networks while they are trained."""

    epochs: int = Field(20, ge=1, description="Passes over the data.")
    every: int = Field(1, ge=1, description="Epochs between two looks.")
    points: int = Field(11, ge=3, description="Points on the line between the networks.")
    batch_size: int = Field(64, ge=1, description="Examples per step.")
    learning_rate: float = Field(0.05, gt=0, description="Of SGD with momentum 0.9.")

    @model_validator(mode="after")
    def _some_look(self) -> Dynamics:
        if self.every > self.epochs:
            raise ValueError(f"every={self.every} is more than epochs={self.epochs}")
        return self


class Swaps(Part):
    """Twins that start a number of transpositions apart."""

    values: int = Field(10, ge=2, description="Numbers of transpositions, evenly spaced.")
    runs: int = Field(5, ge=1, description="Repeats of each.")
    epochs: int = Field(20, ge=1, description="Passes over the data.")
    batch_size: int = Field(64, ge=1, description="Examples per step.")
    learning_rate: float = Field(0.02, gt=0, description="Of SGD with momentum 0.9.")


class CompactConfig(StudyConfig):
    """The compact posterior of a fully connected network, or of a user's own."""

    hidden: list[int] = Field([64], min_length=1, description="Units of the hidden layers.")
    prior_variance: float = Field(0.3, gt=0, description="Of the normal prior on all weights.")
    hmc: Hmc = Field(Hmc(), description="Hamiltonian Monte Carlo.")
    ensemble: Ensemble = Field(Ensemble(), description="MAP networks.")
    vi: Vi = Field(Vi(), description="Mean-field variational inference.")
    chains: Chains = Field(Chains(), description="Chains of SGHMC and modes of SWAG.")
    fit: Fit = Field(Fit(), description="The compact fits.")
    dynamics: Dynamics = Field(Dynamics(), description="Barriers during training.")
    swaps: Swaps = Field(Swaps(), description="The study of transpositions.")
    keep: list[Annotated[float, Field(gt=0, le=1)]] = Field(
        [1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.01],
        description="Shares of weights that pruning keeps.",
    )
