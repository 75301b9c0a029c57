"""Problems with known answers, small enough for every method."""

import dataclasses

import jax.numpy as jnp
import numpy as np

import onebasin as ob


@dataclasses.dataclass(frozen=True)
class LinearRegression:
    """Bayesian linear regression: the posterior is N(mean, covariance)."""

    problem: ob.Problem
    mean: np.ndarray
    covariance: np.ndarray
    precision: np.ndarray


def linear_regression(
    num_examples: int = 60, dimensions: int = 3, noise: float = 0.5, scale: float = 1.0
) -> LinearRegression:
    rng = np.random.default_rng(0)
    mixing = np.eye(dimensions) + 0.4 * np.eye(dimensions, k=1)
    x = rng.normal(size=(num_examples, dimensions)) @ mixing
    y = x @ np.linspace(-1, 1.5, dimensions) + noise * rng.normal(size=num_examples)
    net = ob.Net(lambda key, inputs: {"w": jnp.zeros(dimensions)}, lambda p, x: x @ p["w"])
    problem = ob.Problem(
        net,
        (x.astype(np.float32), y.astype(np.float32)),
        prior=ob.Normal(scale),
        likelihood="gaussian",
        noise=noise,
    )
    precision = x.T @ x / noise**2 + np.eye(dimensions) / scale**2
    covariance = np.linalg.inv(precision)
    return LinearRegression(problem, covariance @ x.T @ y / noise**2, covariance, precision)


def small_network(learned_noise: bool = False) -> ob.Problem:
    """Twenty noisy points of a sine, a network of thirteen weights."""
    x = np.linspace(-1, 1, 20, dtype=np.float32)[:, None]
    y = np.sin(3 * x[:, 0]) + 0.2 * np.random.default_rng(0).normal(size=20)
    net = ob.nets.mlp(hidden=(4,), outputs=1, activation="tanh")
    noise = None if learned_noise else 0.2
    return ob.Problem(net, (x, y), likelihood="gaussian", noise=noise)


def stacked(posterior) -> np.ndarray:
    """Draws of a problem whose parameters are {"w": vector}, as a matrix."""
    return np.asarray(posterior.params["w"])
