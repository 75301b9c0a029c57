"""Mean-field variational inference.

A Gaussian q = N(m, diag(s^2)) that minimises, for the target exp(-U / T),

    F(q) = -E_q[log p(data | theta)] / T - E_q[log p(theta)] / T - H(q),

the Kullback-Leibler divergence from the posterior up to a constant. The entropy H and, for normal
and Laplace priors, the expected log prior are in closed form; the expected log likelihood is
estimated by draws of the weights (blundell2015weight), or with noise of its own for every example,
which averages out over a batch: of the pre-activations of dense layers (kingma2015variational), and
by random signs where positions share their weights, as in convolutions (wen2018flipout).
"""

from __future__ import annotations

import dataclasses
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
from onebasin.infer.linear_sites import LinearSites
from onebasin.infer.loop import Journal, summary
from onebasin.infer.optimizers import Recipe
from onebasin.infer.problem import LOG_NOISE, Batch, Problem
from onebasin.posterior import Gaussian, Mixture
from onebasin.store import Run

REPARAMETERISATIONS = ("local", "weights")


@dataclasses.dataclass(frozen=True)
class FreeEnergy:
    """F(q) / N on a batch; the variables are the mean and the log of the standard deviation."""

    num_samples: int
    local: bool

    def __call__(self, problem: Problem, variables: Any, batch: Batch, key: jax.Array) -> jax.Array:
        mean, log_std = variables["mean"], variables["log_std"]
        std = jax.tree.map(jnp.exp, log_std)
        for_prior, for_data = jax.random.split(key)

        def log_likelihood(number: jax.Array) -> jax.Array:
            return self.log_likelihood(
                problem, mean, std, batch, jax.random.fold_in(for_data, number)
            )

        if self.num_samples == 1:
            expected = log_likelihood(jnp.zeros((), jnp.int32))
        else:
            expected = jnp.mean(jax.vmap(log_likelihood)(jnp.arange(self.num_samples)))
        prior = problem.prior.expected_log_density(
            for_prior, problem.params_of(mean), problem.params_of(std)
        )
        if problem.learns_noise:
            # Normal: in closed form, so that the key is not used.
            prior += LOG_NOISE.expected_log_density(for_prior, mean["log_noise"], std["log_noise"])
        entropy = sum(jnp.sum(x) for x in jax.tree.leaves(log_std))
        return -((expected + prior) / problem.temperature + entropy) / problem.num_examples

    def log_likelihood(
        self, problem: Problem, mean: Any, std: Any, batch: Batch, key: jax.Array
    ) -> jax.Array:
        """The log likelihood of a batch, scaled to all data, for one draw."""
        for_noise, for_params = jax.random.split(key)
        unknowns = mean
        if problem.learns_noise:
            log_noise = mean["log_noise"] + std["log_noise"] * jax.random.normal(for_noise)
            unknowns = {"params": mean["params"], "log_noise": log_noise}
        means, stds = problem.params_of(mean), problem.params_of(std)
        if self.local:
            sites = LinearSites(problem.learner.apply, problem.shapes(), problem.example())
            outputs = sites.local_outputs(means, stds, batch[0], for_params)
        else:
            outputs = problem.learner.apply(Gaussian(means, stds).draw(for_params), batch[0])
        logs = problem.log_likelihoods(unknowns, outputs, batch[1])
        return problem.scale(len(batch[1])) * jnp.sum(logs)


@on_engine(version=1)
def mean_field(
    key: jax.Array,
    problem: Problem,
    *,
    num_networks: int = 1,
    epochs: int | None = None,
    batch_size: int | None = None,
    optimizer: optax.GradientTransformation | Recipe | None = None,
    learning_rate: float = 1e-2,
    num_samples: int = 1,
    reparameterisation: str | None = None,
    init: Any = "random",
    init_std: float = 0.01,
    memory: int | None = None,
    progress: bool = False,
    run: str | Path | Run | None = None,
    chunk: int | None = None,
    engine: Engine | None = None,
) -> Gaussian | Mixture:
    """Fits a diagonal Gaussian, or several from different starts.

    Args:
        key: Random key.
        problem: The target.
        num_networks: How many fits; more than one makes a mixture.
        epochs: Passes over the data; by default 150, or as many as make 6,000 steps.
        batch_size: Examples per step; by default 100, or all of smaller data.
        optimizer: Any optax optimiser, or what `sgd` or `adam` of this room return, whose rate goes
            by the length of the training; by default Adam with a cosine schedule.
        learning_rate: Of the default optimiser.
        num_samples: Draws per step for the expected log likelihood.
        reparameterisation: "local" has noise of its own for every example, in dense layers and in
            convolutions; "weights" draws all weights, the same for all examples of a batch. By
            default the first, and the second where examples of a batch meet in running statistics.
        init: Where means start: as for `ensemble`, or a `Gaussian`, which sets the spread too.
        init_std: Standard deviation that fits start from.
        memory: Budget in bytes of one step.
        progress: Whether to draw a bar.
        run: A folder that keeps the state; the same call continues there.
        chunk: Epochs between two saves; the result does not depend on it.
        engine: Where chunks of networks run as tasks; None for here, all as one program.

    Returns:
        A Gaussian, or a mixture; `info` has the curve of F / N, (epoch, fit).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import onebasin as ob
        >>> net = ob.Net(lambda key, x: jnp.zeros(1), lambda w, x: x * w)
        >>> x = jnp.linspace(-1, 1, 10)[:, None]
        >>> problem = ob.Problem(net, (x, 2 * x), likelihood="gaussian", noise=0.5)
        >>> ob.infer.mean_field(jax.random.key(0), problem, epochs=2)
        Gaussian(1 weights, rank 0)
    """
    arguments = dict(locals())
    if reparameterisation is None:
        reparameterisation = "weights" if problem.has_state else "local"
    if reparameterisation == "local" and problem.has_state:
        raise ValueError(
            "got reparameterisation='local' and a network with running statistics, in which the "
            "examples of a batch meet: take reparameterisation='weights'"
        )
    if reparameterisation not in REPARAMETERISATIONS:
        raise ValueError(
            f"got reparameterisation={reparameterisation!r}, expected one of "
            f"{', '.join(REPARAMETERISATIONS)}"
        )
    if num_samples < 1:
        raise ValueError(f"got num_samples={num_samples}, expected at least one draw")
    if not init_std > 0:
        raise ValueError(f"got init_std={init_std}, expected a positive number")
    journal = Journal.open(mean_field, key, problem, arguments, run, progress, chunk)
    for_init, for_training = jax.random.split(key)
    centre = init.mean if isinstance(init, Gaussian) else init
    mean = training.starting_points(for_init, problem, num_networks, centre)
    log_std = jax.tree.map(lambda x: jnp.full_like(x, np.log(init_std)), mean)
    if isinstance(init, Gaussian):
        given = jax.tree.map(lambda v: jnp.log(jnp.sqrt(v)), init.variance())
        stacked = jax.tree.map(lambda x: jnp.broadcast_to(x, (num_networks, *x.shape)), given)
        log_std = {**log_std, "params": stacked} if problem.learns_noise else stacked
    batch = training.checked_batch(problem, batch_size)
    steps = problem.num_examples // batch
    fitted, outputs = training.train(
        journal,
        "fitting",
        for_training,
        problem,
        rows_of({"mean": mean, "log_std": log_std}),
        num_networks,
        FreeEnergy(num_samples, reparameterisation == "local"),
        optimizer=optimizer,
        learning_rate=learning_rate,
        epochs=max(150, -(-3 * training.MIN_STEPS // steps)) if epochs is None else epochs,
        batch_size=batch_size,
        memory=memory,
    )
    info = summary(journal, loss=outputs["loss"])
    std = jax.tree.map(jnp.exp, fitted["log_std"])
    members = [
        jax.tree.map(lambda x, i=i: x[i], (fitted["mean"], std)) for i in range(num_networks)
    ]
    found = [problem.gaussian(mean, std, info=info) for mean, std in members]
    return found[0] if num_networks == 1 else Mixture(found, info=info)
