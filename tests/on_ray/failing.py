"""Tasks where workers can import them."""

import os
import time


def fail_or_not(number: int) -> int:
    if number == 2:
        raise ValueError(f"number {number} is bad")
    return number


def rounded() -> str:
    """A sum of many numbers, whose last digits tell how many threads shared it."""
    import jax
    import jax.numpy as jnp

    x = jax.random.normal(jax.random.key(1), (16, 200_000))
    return float(jax.jit(lambda x: jnp.sum(x * x))(x)).hex()


def side_by_side(number: int) -> list[float | str]:
    """From when to when it ran, where, with which share of a GPU's memory and how many threads."""
    began = time.time()
    time.sleep(0.5)
    names = ("XLA_PYTHON_CLIENT_MEM_FRACTION", "OMP_NUM_THREADS")
    return [began, time.time(), os.getpid(), *(os.environ.get(name, "") for name in names)]


def keepalive() -> list[int]:
    """After how many milliseconds Ray, in this process, asks whether a link is there; and waits."""
    from ray._raylet import Config

    return [Config.grpc_client_keepalive_time_ms(), Config.grpc_client_keepalive_timeout_ms()]


def tiny(number: int, seconds: float = 0) -> dict[str, int]:
    time.sleep(seconds)
    return {"number": number}
