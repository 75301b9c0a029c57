"""Products of vectors and matrices."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from onebasin.torch.ops.elementwise import scaled
from onebasin.torch.table import Family

linear_family = Family("linear")

linear_family.rows(
    {
        "bmm": jnp.matmul,
        "dot": jnp.dot,
        "ger": jnp.outer,
        "inner": jnp.inner,
        "kron": jnp.kron,
        "linalg_cross": lambda x, y, dim=-1: jnp.cross(x, y, axis=dim),
        "linalg_inv": jnp.linalg.inv,
        "linalg_multi_dot": jnp.linalg.multi_dot,
        "matmul": jnp.matmul,
        "mm": jnp.matmul,
        "mv": jnp.matmul,
        "outer": jnp.outer,
        "vdot": jnp.vdot,
    }
)


@linear_family("linear")
def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    product = jnp.matmul(x, weight.T)
    return product if bias is None else product + bias


@linear_family("addmm", "addmv", "baddbmm")
def addmm(x: Any, first: Any, second: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return scaled(x, beta) + scaled(jnp.matmul(first, second), alpha)


@linear_family("addbmm")
def addbmm(x: Any, first: Any, second: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return scaled(x, beta) + scaled(jnp.einsum("bij,bjk->ik", first, second), alpha)


@linear_family("addr")
def addr(x: Any, first: Any, second: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return scaled(x, beta) + scaled(jnp.outer(first, second), alpha)


@linear_family("einsum")
def einsum(equation: str, operands: Any, *, path: Any = None) -> Any:
    return jnp.einsum(equation.replace(" ", ""), *operands)


@linear_family("tensordot")
def tensordot(x: Any, y: Any, dims_self: Any, dims_other: Any) -> Any:
    return jnp.tensordot(x, y, (tuple(dims_self), tuple(dims_other)))


@linear_family("bilinear")
def bilinear(first: Any, second: Any, weight: Any, bias: Any = None) -> Any:
    product = jnp.einsum("...i,oij,...j->...o", first, weight, second)
    return product if bias is None else product + bias


@linear_family("cosine_similarity")
def cosine_similarity(x: Any, y: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    def unit(z: Any) -> Any:
        squares = jnp.sum(z * z, axis=dim, keepdims=True)
        floor = jnp.asarray(eps * eps, z.dtype)
        return z / jnp.sqrt(jnp.where(squares < floor, floor, squares))

    return jnp.sum(unit(x) * unit(y), axis=dim)


@linear_family("pairwise_distance")
def pairwise_distance(
    x: Any, y: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Any:
    return jnp.sum(jnp.abs(x - y + eps) ** p, axis=-1, keepdims=keepdim) ** (1 / p)


@linear_family("cdist", "_cdist_forward")
def cdist(x: Any, y: Any, p: float = 2.0, compute_mode: int | None = None) -> Any:
    """Distances between all pairs of rows; a row has no slope towards itself."""
    gaps = jnp.abs(x[..., :, None, :] - y[..., None, :, :])
    if p == float("inf"):
        return jnp.max(gaps, axis=-1)
    total = jnp.sum(gaps if p == 1 else gaps**p, axis=-1)
    return jnp.where(total > 0, jnp.where(total > 0, total, 1) ** (1 / p), 0)


@linear_family("linalg_cholesky")
def cholesky(x: Any, *, upper: bool = False) -> Any:
    return jnp.linalg.cholesky(x, upper=upper, symmetrize_input=False)


@linear_family("linalg_solve")
def solve(x: Any, y: Any, *, left: bool = True) -> Any:
    if not left:
        return solve(x.mT, y.mT).mT
    vector = y.ndim == x.ndim - 1 and y.shape == x.shape[:-1]
    return jnp.linalg.solve(x, y[..., None])[..., 0] if vector else jnp.linalg.solve(x, y)
