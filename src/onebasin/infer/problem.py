"""What is inferred: a network, data, a prior and a likelihood.

The target of every method is the one density

    p(theta) ~ exp(-U(theta) / T),   U(theta) = -sum_n log p(y_n | x_n, theta) - log p(theta).

On a minibatch of M out of N examples the sum is estimated by N / M times the sum over the batch,
and this is the one place where that is done.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin._factory import is_torch
from onebasin.infer.augmentation import check_augmentation
from onebasin.infer.examples import check_data, on_device
from onebasin.infer.learner import estimate_states, keeps_count, learner_of
from onebasin.infer.priors import Normal, Prior
from onebasin.infer.traced import programs_of
from onebasin.nets import Net, in_bfloat16
from onebasin.nets.net import is_net, net_of
from onebasin.nets.state import join
from onebasin.posterior import Draws, Gaussian
from onebasin.posterior.trees import is_float, named_leaves, with_arrays

LIKELIHOODS = ("categorical", "gaussian")
LOG_NOISE = Normal(1.0)
# Examples with which a PyTorch module is converted.
FEW = 4
# Examples at a time where a density is only looked at.
EVALUATED = 1000
PRECISIONS = ("float32", "bfloat16")
# Apart from whatever else is drawn for a batch.
AUGMENTING = 2**31 - 1
# What a problem is to JAX: arrays, and what is the same in all its programs.
ARRAYS = ("inputs", "targets", "prior", "noise", "temperature", "num_effective")
FUNCTIONS = ("net", "likelihood", "augment", "precision", "learner")
Batch = tuple[Any, jax.Array]
# Beside the problems and not in them: what is in a problem is what tells it from others.
_DIGESTS: weakref.WeakKeyDictionary[Problem, tuple[list[Any], str]] = weakref.WeakKeyDictionary()


@jax.tree_util.register_pytree_with_keys_class
class Problem:
    """A network with data, a prior and a likelihood: what the methods of `infer` work on.

    Data are put on the device once. The unknowns are the network's parameters and, where the noise
    of a Gaussian likelihood is learned, its logarithm with a standard normal prior; methods hand
    back the former as `params` and the latter as the statistic "noise".

    Args:
        net: The network, a `Net` or a plain pair (init, apply) of functions; its outputs are logits
            (example, class) or means (example, ...). A PyTorch module is converted.
        train: Inputs and targets: integer classes (example,), or numbers like the outputs. Lists
            of numbers, or of rows of them, are arrays.
        prior: The prior of the parameters.
        likelihood: "categorical", "gaussian", or a function from outputs and targets to the log
            likelihood of each example.
        noise: Standard deviation of a Gaussian likelihood; None for a learned one.
        temperature: T of the target exp(-U / T); below 1 the posterior is sharpened.
        augment: `augment(key, inputs) -> inputs`, applied to every minibatch anew; see
            `onebasin.augment`. The likelihood is then, for each example, the mean over the
            augmentation of log p(y | augmented x, theta): no likelihood of the data as they are.
        num_effective: How many examples the data count for, by default as many as there are. An
            augmentation makes more of each, and the posterior narrower if they are to count
            (osawa2019practical multiply their number by a factor).
        precision: "float32", or "bfloat16" for products and activations in half precision while
            weights and their updates stay in single. What is learned predicts in single.

    A network with running statistics, {"params": ..., "batch_stats": ...}, is learned by the
    statistics of its batches. The unknowns are its weights alone: statistics have no prior, no
    noise and no gradient, and are estimated on the training inputs for each network that comes out.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import onebasin as ob
        >>> x = jnp.linspace(-1, 1, 8)[:, None]
        >>> net = ob.nets.mlp(hidden=(4,), outputs=1)
        >>> problem = ob.Problem(
        ...     net, (x, x[:, 0] ** 2), prior=ob.Normal(1.0), likelihood="gaussian", noise=0.1
        ... )
        >>> problem
        Problem(8 examples, 13 weights, gaussian)
        >>> params = problem.init(jax.random.key(0))
        >>> problem.log_density(params).shape
        ()
    """

    def __init__(
        self,
        net: Net | tuple[Callable[..., Any], Callable[..., Any]],
        train: tuple[Any, Any],
        prior: Prior = Normal(1.0),  # noqa: B008
        likelihood: str | Callable[[jax.Array, jax.Array], jax.Array] = "categorical",
        noise: float | None = None,
        temperature: float = 1.0,
        augment: Callable[[jax.Array, Any], Any] | None = None,
        num_effective: float | None = None,
        precision: str = "float32",
    ):
        if not isinstance(prior, Prior):
            raise TypeError(
                f"the prior is a {type(prior).__name__}, expected Normal, Laplace or StudentT"
            )
        positive = {"noise": noise, "temperature": temperature, "num_effective": num_effective}
        for name, value in positive.items():
            if isinstance(value, int | float) and not (0 < value < np.inf):
                raise ValueError(f"got {name}={value}, expected a positive number")
        if not callable(likelihood) and likelihood not in LIKELIHOODS:
            raise ValueError(
                f"got likelihood={likelihood!r}, expected one of {', '.join(LIKELIHOODS)}, or a "
                "function of outputs and targets"
            )
        if noise is not None and likelihood != "gaussian":
            raise ValueError(f"noise={noise} belongs to likelihood='gaussian', got {likelihood!r}")
        self.net = net_of(net)
        if not is_net(self.net) and not is_torch(net):
            raise TypeError(
                f"the network is a {_kind(net)}, expected an onebasin.Net, a pair "
                "(init, apply) of functions init(key, inputs) and apply(params, inputs), or a "
                "PyTorch module"
            )
        self.prior = prior
        self.likelihood = likelihood
        self.noise = noise
        self.temperature = temperature
        self.augment = augment
        self.num_effective = num_effective
        self.precision = _lookup("precision", precision, PRECISIONS)
        self.inputs, self.targets = self._checked(train)

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        """The arrays are children, the functions are not."""
        children = [(jax.tree_util.GetAttrKey(name), getattr(self, name)) for name in ARRAYS]
        return children, tuple(getattr(self, name) for name in FUNCTIONS)

    @classmethod
    def tree_unflatten(cls, static: Any, children: Any) -> Problem:
        """Skips the checks: JAX rebuilds trees around things that are not arrays."""
        problem = object.__new__(cls)
        for name, value in zip((*ARRAYS, *FUNCTIONS), (*children, *static), strict=True):
            setattr(problem, name, value)
        return problem

    def __repr__(self) -> str:
        weights = sum(int(np.prod(x.shape)) for x in jax.tree.leaves(self.shapes()))
        name = self.likelihood if isinstance(self.likelihood, str) else "own likelihood"
        return f"Problem({self.num_examples:,} examples, {weights:,} weights, {name})"

    @property
    def num_examples(self) -> int:
        """Number of training examples, N."""
        return int(self.targets.shape[0])

    @property
    def learns_noise(self) -> bool:
        """Whether the noise of a Gaussian likelihood is one of the unknowns."""
        return self.likelihood == "gaussian" and self.noise is None

    @property
    def has_state(self) -> bool:
        """Whether the network has running statistics beside its weights."""
        return keeps_count(self.learner)

    def shapes(self) -> Any:
        """Shapes and types of the network's weights."""
        return jax.eval_shape(self.learner.init, jax.random.key(0), self.example())

    def network_shapes(self) -> Any:
        """Shapes and types of the network's parameters, running statistics with them."""
        return jax.eval_shape(self.net.init, jax.random.key(0), self.example())

    def example(self) -> Any:
        """The first training input, as a batch of one."""
        return jax.tree.map(lambda x: x[:1], self.inputs)

    def init(self, key: jax.Array) -> Any:
        """Unknowns to start from: the network's own initialisation."""
        return self.join(self.learner.init(key, self.example()))

    def sample_prior(self, key: jax.Array) -> Any:
        """Unknowns drawn from the prior."""
        for_params, for_noise = jax.random.split(key)
        params = self.prior.sample(for_params, self.shapes())
        return self.join(params, jax.random.normal(for_noise) if self.learns_noise else None)

    def join(self, params: Any, log_noise: Any = None) -> Any:
        """The unknowns, from parameters and the log of the noise (0 by default)."""
        if not self.learns_noise:
            return params
        return {"params": params, "log_noise": jnp.zeros(()) if log_noise is None else log_noise}

    def params_of(self, unknowns: Any) -> Any:
        """The network's weights among the unknowns."""
        return unknowns["params"] if self.learns_noise else unknowns

    def log_prior(self, unknowns: Any) -> jax.Array:
        """Log p(theta)."""
        density = self.prior.log_density(self.params_of(unknowns))
        if self.learns_noise:
            density += LOG_NOISE.log_density(unknowns["log_noise"])
        return density

    def log_likelihoods(self, unknowns: Any, outputs: jax.Array, targets: jax.Array) -> jax.Array:
        """Log p(y | x, theta) of every example, from the network's outputs."""
        if callable(self.likelihood):
            found = jnp.asarray(self.likelihood(outputs, targets))
            if found.shape[:1] != (len(targets),):
                raise ValueError(
                    f"the likelihood gives an array of shape {found.shape} for {len(targets)} "
                    "examples, expected the log likelihood of each: it is summed, and scaled from "
                    "batches to all data, here"
                )
            return found
        if self.likelihood == "categorical":
            chosen = jnp.take_along_axis(outputs, targets[..., None], axis=-1)[..., 0]
            return chosen - jax.nn.logsumexp(outputs, axis=-1)
        log_noise = unknowns["log_noise"] if self.learns_noise else jnp.log(jnp.asarray(self.noise))
        squares = ((outputs - targets) * jnp.exp(-log_noise)) ** 2
        per_output = -0.5 * (squares + np.log(2 * np.pi)) - log_noise
        return per_output.reshape(len(targets), -1).sum(axis=-1)

    def log_likelihood(self, unknowns: Any, batch: Batch | None = None) -> jax.Array:
        """Log p(data | theta), or its estimate from a batch: N / M times the batch's."""
        inputs, targets = (self.inputs, self.targets) if batch is None else batch
        outputs = self.learner.apply(self.params_of(unknowns), inputs)
        return self.scale(len(targets)) * jnp.sum(self.log_likelihoods(unknowns, outputs, targets))

    def scale(self, batch_size: int) -> float:
        """N / M: what makes a sum over a batch an estimate of the sum over the data."""
        count = self.num_examples if self.num_effective is None else self.num_effective
        return count / batch_size

    def log_density(self, unknowns: Any, batch: Batch | None = None) -> jax.Array:
        """-U(theta) / T up to a constant, or its estimate from a batch."""
        total = self.log_likelihood(unknowns, batch) + self.log_prior(unknowns)
        return total / self.temperature

    def evaluated_log_density(self, unknowns: Any) -> jax.Array:
        """-U(theta) / T up to a constant, on all data but some examples at a time.

        For where no gradient is taken: activations of all examples may not fit a device.
        """
        whole = self.num_examples // EVALUATED * EVALUATED

        def fit(inputs: Any, targets: jax.Array) -> jax.Array:
            outputs = self.learner.apply(self.params_of(unknowns), inputs)
            return jnp.sum(self.log_likelihoods(unknowns, outputs, targets))

        def cut(x: jax.Array) -> jax.Array:
            return x[:whole].reshape(-1, EVALUATED, *x.shape[1:])

        total = jnp.zeros(())
        if whole:
            batches = jax.tree.map(cut, self.inputs), cut(self.targets)
            total += jnp.sum(jax.lax.map(lambda batch: fit(*batch), batches))
        if whole < self.num_examples:
            total += fit(jax.tree.map(lambda x: x[whole:], self.inputs), self.targets[whole:])
        scaled = self.scale(self.num_examples) * total
        return (scaled + self.log_prior(unknowns)) / self.temperature

    def take(self, rows: jax.Array, key: jax.Array | None = None) -> Batch:
        """The examples of some rows, augmented where there is a key and an augmentation."""
        inputs = jax.tree.map(lambda x: x[rows], self.inputs)
        if self.augment is not None and key is not None:
            inputs = self.augment(jax.random.fold_in(key, AUGMENTING), inputs)
        return inputs, self.targets[rows]

    def networks_of(self, params: Any) -> Any:
        """Stacked weights as stacked parameters: with running statistics, if the network has any.

        Args:
            params: Weights, (network, ...).
        """
        if not self.has_state:
            return params
        return join(params, estimate_states(self, params))

    def draws(
        self,
        unknowns: Any,
        mode: Any,
        log_density: Any = None,
        statistics: Any = None,
        info: Any = None,
    ) -> Draws:
        """Stacked unknowns as `Draws` of networks, the noise among the statistics."""
        if self.learns_noise:
            noise = np.exp(np.asarray(unknowns["log_noise"]))
            statistics = {**(statistics or {}), "noise": noise}
        params = self.networks_of(self.params_of(unknowns))
        return Draws(params, mode, log_density, statistics or None, info)

    def gaussian(self, mean: Any, std: Any, factor: Any = None, info: Any = None) -> Gaussian:
        """A Gaussian over the unknowns as one over networks; a learned noise goes into `info`."""
        if self.learns_noise:
            info = {**(info or {}), "noise": float(np.exp(np.asarray(mean["log_noise"])))}
            mean, std = self.params_of(mean), self.params_of(std)
            factor = None if factor is None else self.params_of(factor)
        if self.has_state:
            state = self.state_of(mean)
            still = jax.tree.map(jnp.zeros_like, state)
            mean, std = join(mean, state), join(std, still)
            if factor is not None:
                rank = jax.tree.leaves(factor)[0].shape[0]
                factor = join(
                    factor, jax.tree.map(lambda x: jnp.zeros((rank, *x.shape), x.dtype), state)
                )
        return Gaussian(mean, std, factor, info)

    def state_of(self, params: Any) -> Any:
        """The running statistics of the network with some weights, on the training inputs."""
        stacked = estimate_states(self, jax.tree.map(lambda x: jnp.asarray(x)[None], params))
        return jax.tree.map(lambda x: x[0], stacked)

    def fingerprint(self) -> dict[str, Any]:
        """What tells this problem from others: its numbers, its data, and its programs.

        Networks, likelihoods and priors of one's own count by what they compute, whatever they are
        called and wherever they are written.
        """
        parameters = {name: list(x.shape) for name, x in named_leaves(self.shapes())}
        scale = jax.tree.map(lambda x: float(x), self.prior.scale)
        return {
            "likelihood": self.likelihood if isinstance(self.likelihood, str) else "own",
            "prior": {"name": type(self.prior).__name__, "scale": scale},
            "noise": None if self.noise is None else float(self.noise),
            "temperature": float(self.temperature),
            "parameters": parameters,
            "data": self._digest(),
            **({} if self.num_effective is None else {"num_effective": float(self.num_effective)}),
            **programs_of(self),
        }

    __fingerprint__ = fingerprint

    def _digest(self) -> str:
        """A hash of the data, worked out once: each network of a population may ask for it."""
        leaves = jax.tree.leaves((self.inputs, self.targets))
        known, digest = _DIGESTS.get(self, ([], ""))
        if len(known) == len(leaves) and all(a is b for a, b in zip(known, leaves, strict=True)):
            return digest
        found = hashlib.sha256()
        for leaf in leaves:
            found.update(str((leaf.shape, leaf.dtype)).encode())
            found.update(np.ascontiguousarray(leaf).tobytes())
        _DIGESTS[self] = leaves, found.hexdigest()
        return found.hexdigest()

    def _checked(self, train: tuple[Any, Any]) -> tuple[Any, jax.Array]:
        if not isinstance(train, tuple | list) or len(train) != 2:
            raise ValueError(
                f"train is a {type(train).__name__}, expected a pair (inputs, targets) of arrays"
            )
        inputs = on_device(with_arrays(train[0], "the inputs"), "the inputs")
        targets = on_device(with_arrays(train[1], "the targets"), "the targets")
        # In the order in which the message names them.
        counts = dict.fromkeys(x.shape[:1] for x in (*jax.tree.leaves(inputs), targets))
        if () in counts:
            raise ValueError(
                "inputs or targets hold a number without axes, expected arrays whose first axis is "
                "the example"
            )
        if len(counts) > 1 or (0,) in counts:
            raise ValueError(
                f"inputs and targets have {' and '.join(str(c[0]) for c in counts)} "
                "examples, expected the same number, and at least one, along their first axis"
            )
        check_data(inputs, "the inputs")
        check_data(targets, "the targets")
        self.inputs, self.targets = inputs, targets
        if is_torch(self.net):
            from onebasin.torch import from_torch

            self.net = from_torch(self.net, jax.tree.map(lambda x: x[:FEW], inputs))[0]
        net = in_bfloat16(self.net) if self.precision == "bfloat16" else self.net
        self.learner = learner_of(net, self.example())
        if self.augment is not None:
            check_augmentation(self.augment, inputs)
        outputs = jax.eval_shape(self.learner.apply, self.shapes(), inputs)
        if not all(is_float(x) for x in jax.tree.leaves(self.shapes())):
            name = next(n for n, x in named_leaves(self.shapes()) if not is_float(x))
            raise ValueError(
                f"the parameter {name!r} is not floating point: keep counters out of the parameters"
            )
        if self.likelihood == "categorical":
            return inputs, _checked_labels(targets, outputs)
        if self.likelihood == "gaussian":
            if targets.size != np.prod(outputs.shape):
                raise ValueError(
                    f"targets have shape {targets.shape} and the network's outputs "
                    f"{outputs.shape}: give one number for each output"
                )
            return inputs, targets.reshape(outputs.shape).astype(outputs.dtype)
        return inputs, targets


def _lookup(what: str, value: Any, known: tuple[str, ...]) -> Any:
    if value not in known:
        raise ValueError(f"got {what}={value!r}, expected one of {', '.join(map(repr, known))}")
    return value


def _kind(net: Any) -> str:
    return "function" if callable(net) and not isinstance(net, type) else type(net).__name__


def _checked_labels(labels: jax.Array, outputs: Any) -> jax.Array:
    classes = outputs.shape[-1]
    if not jnp.issubdtype(labels.dtype, jnp.integer) or labels.shape != outputs.shape[:-1]:
        raise ValueError(
            f"labels have shape {labels.shape} and type {labels.dtype}, expected integer classes "
            f"of shape {outputs.shape[:-1]}; use likelihood='gaussian' for numbers"
        )
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise ValueError(
            f"labels run from {low} to {high}, and the network has {classes} outputs: expected "
            f"0 to {classes - 1}"
        )
    return labels.astype(jnp.int32)
