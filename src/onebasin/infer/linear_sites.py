"""Where parameters enter a model linearly: dense layers, convolutions and their biases.

At such a site rows a are multiplied by a matrix W, and two methods rest on that. For weights
N(m, s^2) the result is N(a m, a^2 s^2) and may be drawn in place of W (the local reparameterisation
of kingma2015variational), or one draw of W serves every example with other signs (wen2018flipout);
and the curvature of W is made of a and of the derivative with respect to
the result (martens2015optimizing).

Models are read off their program, for one example: they must treat the examples of a batch apart.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.infer.problem import Problem
from onebasin.infer.sites import Site, find_sites
from onebasin.symmetry.program import evaluate, trace


class LinearSites:
    """The sites of a model, and two ways to run it through them.

    Args:
        apply_fn: The model.
        params: Its parameters, or their shapes.
        example: A batch of one input, or its shape.

    Attributes:
        sites: The sites in the order of the program.
        additions: Leaves that are used once, in a sum: biases, those of sites among them.
        others: Leaves that belong to no site.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from onebasin import nets
        >>> from onebasin.infer.linear_sites import LinearSites
        >>> net = nets.mlp(hidden=(5,), outputs=2)
        >>> x = jnp.ones((4, 3))
        >>> params = net.init(jax.random.key(0), x)
        >>> model = LinearSites(net.apply, params, x[:1])
        >>> [site.kernel_index.shape for site in model.sites], model.others
        ([(3, 5), (5, 2)], ())
        >>> std = jax.tree.map(jnp.zeros_like, params)
        >>> drawn = model.local_outputs(params, std, x, jax.random.key(1))
        >>> bool(jnp.allclose(drawn, net.apply(params, x)))
        True
    """

    def __init__(self, apply_fn: Callable[[Any, Any], Any], params: Any, example: Any):
        # Activations with derivatives of their own stay whole: relu has 0 at 0, where max has 1/2.
        self._program = trace(apply_fn, params, example, custom=False)
        leaves = jax.tree.leaves(params)
        self._count = len(leaves)
        self._starts = np.cumsum([0, *(int(np.prod(np.shape(leaf))) for leaf in leaves)])
        self.sites, self.additions = find_sites(self._program, self._count)
        mine = {leaf for site in self.sites for leaf in (site.kernel, site.bias)}
        self.others = tuple(leaf for leaf in range(self._count) if leaf not in mine)

    def places(self, site: Site) -> np.ndarray:
        """Where the matrix of a site lies in the vector of all leaves; its bias is the last row."""
        index = self._starts[site.kernel] + site.kernel_index
        if site.bias is None or site.bias_index is None:
            return index
        return np.concatenate([index, self._starts[site.bias] + site.bias_index[None]])

    def other_places(self) -> np.ndarray:
        """Where the leaves that belong to no site lie in the vector of all leaves."""
        ranges = [np.arange(self._starts[i], self._starts[i + 1]) for i in self.others]
        return np.concatenate([np.arange(0), *ranges])

    def pullback(
        self, params: Any, example: Any
    ) -> tuple[jax.Array, list[jax.Array], Callable[[jax.Array], Any]]:
        """The model at one example, its rows, and derivatives at the sites.

        Args:
            params: The parameters.
            example: A batch of one input.

        Returns:
            The outputs; what enters each site, (positions, inputs); and a function that takes a
            cotangent of the outputs to the derivatives with respect to what each site puts out,
            (positions, outputs), and with respect to each of the other leaves.
        """
        leaves = jax.tree.leaves(params)

        def run(shifts: list[jax.Array], others: list[Any]) -> tuple[jax.Array, list[jax.Array]]:
            rows: dict[int, jax.Array] = {}

            def shifted(number: int, operands: list[Any], result: Any) -> Any:
                site = self.sites[number]
                rows[number] = site.rows(operands[site.side])
                return result + shifts[number]

            own = list(leaves)
            for leaf, value in zip(self.others, others, strict=True):
                own[leaf] = value
            outputs = self._run(own, example, shifted)
            return outputs, [rows[number] for number in range(len(self.sites))]

        results = [site.equation.outputs[0].aval for site in self.sites]
        zeros = [jnp.zeros(result.shape, result.dtype) for result in results]
        others = [leaves[leaf] for leaf in self.others]
        outputs, pull, rows = jax.vjp(run, zeros, others, has_aux=True)

        def derivatives(cotangent: jax.Array) -> tuple[list[jax.Array], list[jax.Array]]:
            shifts, own = pull(cotangent)
            return [s.outputs(g) for s, g in zip(self.sites, shifts, strict=True)], own

        return outputs, rows, derivatives

    def local_outputs(self, mean: Any, std: Any, inputs: Any, key: jax.Array) -> jax.Array:
        """The outputs for weights N(mean, std^2), with noise of its own for every example.

        At a dense layer the result is drawn in place of the weights; a bias is drawn for each
        example. Convolutions and layers that share their weights between positions, where the
        results of one example hang together, have one draw of the weights for the batch, whose
        deviations from the mean get random signs by input and by output, anew for every example
        (wen2018flipout). Whatever enters in another way is drawn once for the batch. The outputs of
        each example have exactly the distribution that drawn weights would give.

        Args:
            mean: Means of the parameters.
            std: Their standard deviations, like `mean`.
            inputs: A batch.
            key: Random key.
        """
        means, stds = jax.tree.leaves(mean), jax.tree.leaves(std)
        count = jax.tree.leaves(inputs)[0].shape[0]
        local = [n for n, site in enumerate(self.sites) if site.positions == 1]
        flipped = [n for n, site in enumerate(self.sites) if site.positions > 1]
        kernels = {site.kernel for site in self.sites}
        once = [i for i in range(self._count) if i not in kernels and i not in self.additions]
        noise = _parts(
            functools.partial(jax.random.normal, key),
            [means[i].shape for i in once],
            [means[self.sites[n].kernel].shape for n in flipped],
            [(count, *means[i].shape) for i in self.additions],
            [(count, *self.sites[n].equation.outputs[0].shape) for n in local],
        )
        signs = _parts(
            functools.partial(jax.random.rademacher, jax.random.fold_in(key, 1), dtype=jnp.int8),
            *([(count, *shape) for shape in self.sites[n].factor_shapes()] for n in flipped),
        )
        shared = list(means)
        for i, e in zip(once, noise[0], strict=True):
            shared[i] = means[i] + stds[i] * e.astype(means[i].dtype)
        deviations = {}
        for n, e in zip(flipped, noise[1], strict=True):
            std_of = stds[self.sites[n].kernel]
            deviations[n] = self.sites[n].moved(std_of * e.astype(std_of.dtype))
        variances = {n: self.sites[n].moved(stds[self.sites[n].kernel] ** 2) for n in local}

        def one(example: Any, apart: Any, at_sites: Any, signs: Any) -> jax.Array:
            own = list(shared)
            for i, e in zip(self.additions, apart, strict=True):
                own[i] = means[i] + stds[i] * e.astype(means[i].dtype)
            noise_at = dict(zip(local, at_sites, strict=True))
            signs_at = dict(zip(flipped, signs, strict=True))

            def drawn(number: int, operands: list[Any], result: Any) -> Any:
                site, equation = self.sites[number], self.sites[number].equation
                entering = operands[site.side]
                if number in noise_at:
                    both = [variances[number], variances[number]]
                    both[site.side] = entering**2
                    spread = _root(equation.primitive.bind(*both, **equation.params))
                    return result + spread * noise_at[number].astype(spread.dtype)
                inner, outer = (sign.astype(entering.dtype) for sign in signs_at[number])
                both = [deviations[number], deviations[number]]
                both[site.side] = entering * inner
                return result + equation.primitive.bind(*both, **equation.params) * outer

            return self._run(own, jax.tree.map(lambda x: x[None], example), drawn)[0]

        return jax.vmap(one)(inputs, noise[2], noise[3], signs)

    def _run(self, leaves: list[Any], example: Any, hook: Callable[..., Any]) -> jax.Array:
        hooks = {
            id(site.equation): functools.partial(hook, number)
            for number, site in enumerate(self.sites)
        }
        arguments = [*leaves, *jax.tree.leaves(example)]
        return evaluate(self._program, arguments, self._program.outputs, hooks)[0]


def sites_of(problem: Problem) -> LinearSites:
    """The sites of a problem's network."""
    example = jax.eval_shape(problem.example)
    return LinearSites(problem.learner.apply, problem.shapes(), example)


def _parts(draw: Callable[..., jax.Array], *groups: list[tuple[int, ...]]) -> list[Any]:
    """Random arrays by group, all from one call: each call would be compiled for itself."""
    shapes = [shape for group in groups for shape in group]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    parts = jnp.split(draw(shape=(int(ends[-1]) if shapes else 0,)), ends[:-1])
    following = (part.reshape(shape) for part, shape in zip(parts, shapes, strict=False))
    return [[next(following) for _ in group] for group in groups]


def _root(x: jax.Array) -> jax.Array:
    """The square root, with derivative 0 at 0."""
    positive = x > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1)), 0)
