"""The generalised Gauss-Newton matrix of the likelihood, whole or in part, summed over the data.

With J_n the Jacobian of the outputs f_n with respect to the weights,

    H = sum_n J_n^T L_n J_n,   L_n = -d^2 log p(y_n | f_n) / d f_n^2 = R_n^T R_n

(schraudolph2002fast): the Hessian of the negative log likelihood without the curvature of the
network. L is diag(p) - p p^T for classes and 1 / noise^2 for a Gaussian. A part of H is kept as
sums over examples n, rows c of R and the T positions t of a layer that shares its weights, where a
layer has inputs a_nt and g_nct is the derivative of R_nc f_n with respect to what it puts out:

    diagonal     sum_nc (sum_t a_nt g_nct^T)^2
    kron         sum_nt a_nt a_nt^T / N  kron  sum_nct g_nct g_nct^T / T
                 (martens2015optimizing; grosse2016kronecker for convolutions), with the bias of a
                 layer as the weight of an input that is always 1; exact where N = 1 and T = 1, and
                 where g is the same for all examples
    full         sum_nc vec(d_nc) vec(d_nc)^T,   d_nc = sum_t a_nt g_nct^T
    last-layer   the block of the last layer of that

Where outputs are many, the rows of R can be replaced by a few of Z R / sqrt(k), with Z a matrix of
k rows of random signs for each example: E Z^T Z is k times the identity, so that all of these keep
their expectation (hutchinson1990stochastic), for k derivatives in place of one for each output.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.infer.linear_sites import LinearSites, sites_of
from onebasin.infer.population import each
from onebasin.infer.problem import Problem
from onebasin.infer.spectra import Dense, Diagonal, Kronecker, Spectrum, eigen

_EXACT = jax.lax.Precision.HIGHEST
_MAX_BATCH = 256
_BUDGET = {"cpu": 2**28, "gpu": 2**32}


@dataclasses.dataclass(frozen=True)
class Parts:
    """What the examples of a batch contribute.

    Attributes:
        rows: For each site what enters it, (example, position, input).
        derivatives: For each site, (example, c, position, output).
        others: For each other leaf, (example, c, weight).
    """

    rows: list[jax.Array]
    derivatives: list[jax.Array]
    others: list[jax.Array]


def likelihood_root(
    problem: Problem, unknowns: Any, outputs: jax.Array, targets: jax.Array
) -> jax.Array:
    """R of one example, (c, *outputs.shape), with sum_c R_c R_c^T = -d^2 log p(y | f) / d f^2.

    A likelihood of one's own counts with the positive part of that matrix.
    """
    if problem.likelihood == "categorical":
        p = jax.nn.softmax(outputs, axis=-1).reshape(-1, outputs.shape[-1])
        own = jnp.sqrt(p)[:, :, None] * (jnp.eye(p.shape[-1]) - p[:, None, :])
        apart = jnp.eye(len(p))[:, None, :, None] * own[:, :, None, :]
        return apart.reshape(-1, *outputs.shape)
    if problem.likelihood == "gaussian":
        learned = problem.learns_noise
        noise = jnp.exp(unknowns["log_noise"]) if learned else jnp.asarray(problem.noise)
        return jnp.eye(outputs.size).reshape(-1, *outputs.shape) / noise

    def loss(flat: jax.Array) -> jax.Array:
        return -jnp.sum(problem.log_likelihoods(unknowns, flat.reshape(outputs.shape), targets))

    values, vectors = jnp.linalg.eigh(jax.hessian(loss)(outputs.ravel()))
    return (jnp.sqrt(jnp.maximum(values, 0)) * vectors).T.reshape(-1, *outputs.shape)


def mixed(root: jax.Array, key: jax.Array, probes: int | None) -> jax.Array:
    """So many random combinations of the rows of R, or R itself."""
    if probes is None:
        return root
    signs = jax.random.rademacher(key, (probes, len(root)), root.dtype)
    return jnp.tensordot(signs, root, 1, precision=_EXACT) / np.sqrt(probes)


def parts_of(
    problem: Problem,
    model: LinearSites,
    unknowns: Any,
    rows: jax.Array,
    weight: jax.Array,
    key: jax.Array,
    probes: int | None = None,
) -> tuple[Parts, jax.Array]:
    """What some examples contribute, and their log likelihoods, both times a weight of 0 or 1."""

    def one(row: jax.Array, weight: jax.Array) -> tuple[Any, Any, Any, jax.Array]:
        inputs, targets = problem.take(row[None])
        outputs, entering, pull = model.pullback(problem.params_of(unknowns), inputs)
        root = weight * likelihood_root(problem, unknowns, outputs, targets)
        # The pullback takes the type of the outputs, and the root may be more precise.
        root = root.astype(outputs.dtype)
        root = mixed(root, jax.random.fold_in(key, row), probes)
        derivatives, others = jax.vmap(pull)(root)
        fit = jnp.sum(problem.log_likelihoods(unknowns, outputs, targets))
        return [weight * a for a in entering], derivatives, others, weight * fit

    entering, derivatives, others, fits = jax.vmap(one)(rows, weight)
    flat = [x.reshape(*x.shape[:2], -1) for x in others]
    return Parts(entering, derivatives, flat), jnp.sum(fits)


class DiagonalSum:
    """The diagonal, exactly."""

    def start(self, model: LinearSites, size: int) -> jax.Array:
        return jnp.zeros(size)

    def add(self, model: LinearSites, total: jax.Array, parts: Parts) -> jax.Array:
        for site, a, g in zip(model.sites, parts.rows, parts.derivatives, strict=True):
            if site.positions == 1:
                own = _einsum("nti,ncto->io", a**2, g**2)
            else:
                own = jnp.sum(_einsum("nti,ncto->ncio", a, g) ** 2, axis=(0, 1))
            total = total.at[model.places(site)].add(own)
        rest = [jnp.sum(x**2, axis=(0, 1)) for x in parts.others]
        return total.at[model.other_places()].add(jnp.concatenate([jnp.zeros(0), *rest]))

    def floats(self, model: LinearSites) -> int:
        return sum(s.kernel_index.size for s in model.sites if s.positions > 1)

    def finish(self, model: LinearSites, total: Any, scale: jax.Array, count: int) -> Spectrum:
        return Diagonal(scale**2 * total)


class KroneckerSum:
    """A Kronecker product for each layer, the exact diagonal for all other weights."""

    def start(self, model: LinearSites, size: int) -> Any:
        shapes = [model.places(site).shape for site in model.sites]
        factors = [(jnp.zeros((i, i)), jnp.zeros((o, o))) for i, o in shapes]
        return factors, jnp.zeros(len(model.other_places()))

    def add(self, model: LinearSites, total: Any, parts: Parts) -> Any:
        factors = [
            (
                left + _einsum("nti,ntj->ij", a, a),
                right + _einsum("ncto,nctp->op", g, g) / site.positions,
            )
            for site, (left, right), a, g in zip(
                model.sites, total[0], parts.rows, parts.derivatives, strict=True
            )
        ]
        rest = [jnp.sum(x**2, axis=(0, 1)) for x in parts.others]
        return factors, total[1] + jnp.concatenate([jnp.zeros(0), *rest])

    def floats(self, model: LinearSites) -> int:
        return 0

    def finish(self, model: LinearSites, total: Any, scale: jax.Array, count: int) -> Spectrum:
        places = [model.places(site) for site in model.sites]
        factors = []
        for index, (left, right) in zip(places, total[0], strict=True):
            # A leaf has one scale: all weights of a row of the matrix share it.
            s = scale[index[:, 0]]
            factors.append((eigen(s[:, None] * left * s / count), eigen(right)))
        rest = model.other_places()
        return Kronecker(places, factors, rest, scale[rest] ** 2 * total[1])


class DenseSum:
    """The whole matrix, or the block of the last layer."""

    def __init__(self, last: bool):
        self.last = last

    def _places(self, model: LinearSites) -> np.ndarray:
        if self.last:
            return model.places(model.sites[-1]).ravel()
        sites = [model.places(site).ravel() for site in model.sites]
        return np.concatenate([*sites, model.other_places()])

    def start(self, model: LinearSites, size: int) -> jax.Array:
        own = len(self._places(model))
        return jnp.zeros((own, own))

    def add(self, model: LinearSites, total: jax.Array, parts: Parts) -> jax.Array:
        chosen = slice(-1, None) if self.last else slice(None)
        rows = [
            _einsum("nti,ncto->ncio", a, g).reshape(*g.shape[:2], -1)
            for a, g in zip(parts.rows[chosen], parts.derivatives[chosen], strict=True)
        ]
        rows += [] if self.last else parts.others
        d = jnp.concatenate(rows, axis=-1)
        return total + _einsum("nci,ncj->ij", d, d)

    def floats(self, model: LinearSites) -> int:
        return len(self._places(model))

    def finish(self, model: LinearSites, total: Any, scale: jax.Array, count: int) -> Spectrum:
        places = self._places(model)
        s = scale[places]
        return Dense.of(places, s[:, None] * total * s)


SUMS: dict[str, Any] = {
    "kron": KroneckerSum(),
    "diagonal": DiagonalSum(),
    "full": DenseSum(last=False),
    "last-layer": DenseSum(last=True),
}


@dataclasses.dataclass(frozen=True)
class Batches:
    """A step of the host loop: the examples of one batch, for every network."""

    structure: str
    batch_size: int
    probes: int | None = None
    group: int = 1

    def __call__(self, data: Any, state: Any, number: Any) -> tuple[Any, dict[str, Any]]:
        unknowns, totals = state
        totals, loss = each(
            lambda u, t: self.member(data, (u, t), number), self.group, unknowns, totals
        )
        return (unknowns, totals), {"loss": loss}

    def member(self, data: Any, state: Any, number: Any) -> tuple[Any, jax.Array]:
        """The sums of one network with a batch more, and the batch's negative log likelihood."""
        problem, key = data
        unknowns, total = state
        model = sites_of(problem)
        rows = number * self.batch_size + jnp.arange(self.batch_size)
        weight = (rows < problem.num_examples).astype(jnp.result_type(float))
        rows = jnp.minimum(rows, problem.num_examples - 1)
        parts, fit = parts_of(problem, model, unknowns, rows, weight, key, self.probes)
        return SUMS[self.structure].add(model, total, parts), -fit


def batch_size(
    problem: Problem,
    model: LinearSites,
    structure: str,
    memory: int | None,
    probes: int | None = None,
) -> int:
    """As many examples as fit: each has its rows, and derivatives for every c."""
    outputs = jax.eval_shape(
        problem.learner.apply, problem.shapes(), jax.eval_shape(problem.example)
    )
    sites = sum(s.positions * sum(model.places(s).shape) for s in model.sites)
    each_c = sites + len(model.other_places()) + SUMS[structure].floats(model)
    needed = 4 * (probes or int(np.prod(outputs.shape))) * each_c
    budget = _BUDGET.get(jax.default_backend(), 2**30) if memory is None else memory
    fitting = budget // max(needed, 1)
    return int(max(1, min(fitting, _MAX_BATCH, problem.num_examples)))


def _einsum(formula: str, *operands: Any) -> jax.Array:
    return jnp.einsum(formula, *operands, precision=_EXACT)


def ggn_product(problem: Problem, unknowns: Any, tangent: Any, size: int) -> Any:
    """H v for a tree v like the parameters, by one pass over the data in batches of `size`."""
    params = problem.params_of(unknowns)
    count = -(-problem.num_examples // size)

    def batch(number: jax.Array, total: Any) -> Any:
        rows = number * size + jnp.arange(size)
        inputs, targets = problem.take(jnp.minimum(rows, problem.num_examples - 1))
        weight = rows < problem.num_examples

        def loss(outputs: jax.Array) -> jax.Array:
            fits = problem.log_likelihoods(unknowns, outputs, targets)
            return -jnp.sum(weight * fits.reshape(size, -1).sum(axis=1))

        def network(p: Any) -> jax.Array:
            return problem.learner.apply(p, inputs)

        outputs, moved = jax.jvp(network, (params,), (tangent,))
        bent = jax.jvp(jax.grad(loss), (outputs,), (moved,))[1]
        (found,) = jax.vjp(network, params)[1](bent)
        return jax.tree.map(jnp.add, total, found)

    zeros = jax.tree.map(jnp.zeros_like, tangent)
    return jax.lax.fori_loop(0, count, batch, zeros)
