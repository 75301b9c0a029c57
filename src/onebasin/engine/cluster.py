"""Ray itself: a private cluster on this machine, or one that runs already."""

from __future__ import annotations

import contextlib
import importlib.util
import ipaddress
import os
import secrets
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onebasin._core.cores import usable_cores
from onebasin.engine.errors import EngineError

ANSWER_SECONDS = 5.0
# Only receipts pass through Ray: its store may be as small as it lets it.
STORE_BYTES = 2**27
KEEPALIVE = {
    "RAY_grpc_keepalive_time_ms": "10000",
    "RAY_grpc_keepalive_timeout_ms": "5000",
    "RAY_grpc_client_keepalive_time_ms": "10000",
    "RAY_grpc_client_keepalive_timeout_ms": "5000",
}
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
# Ray's own switch, which keeps all of its sockets on the loopback address.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
JAX_SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_numpy_dtype_promotion",
)


def start_private(workers: int | None) -> Path:
    """Starts Ray on the loopback address, with a token that only this process and its workers know.

    Returns:
        The folder of its logs.

    Raises:
        EngineError: If Ray is not installed, or was imported before and has other settings.
    """
    early = "ray" in sys.modules
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    os.environ.update({**KEEPALIVE, **QUIET, **LOOPBACK, "RAY_AUTH_MODE": "token"})
    ray = imported()
    if early:
        # It has read its settings already.
        ray._raylet.Config.initialize("")
        ray._private.ray_constants.ENABLE_RAY_CLUSTER = False
    # A folder that others can neither read nor confuse with that of a cluster of theirs.
    place = Path(tempfile.mkdtemp(prefix="ob-ray-"))
    ray.init(
        address="local",
        num_cpus=workers or usable_cores(),
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        object_store_memory=STORE_BYTES,
        runtime_env={"env_vars": worker_environment(private=True)},
        _temp_dir=str(place),
    )
    host = ray.util.get_node_ip_address()
    by_token = ray._raylet.get_authentication_mode() == ray._raylet.AuthenticationMode.TOKEN
    if host != "127.0.0.1" or not by_token:
        ray.shutdown()
        before = " because ray was imported before" if early else ""
        raise EngineError(
            f"Ray would listen on {host}, or without its token{before}: open the engine first, "
            "then import ray"
        )
    return place


def connect(address: str) -> Path:
    """Joins a running cluster, and warns of one that others can reach and that asks for no token.

    Raises:
        EngineError: If nothing answers there, or it does not let us in.
    """
    if address.startswith("ray://"):
        raise EngineError(
            f"got the address {address!r} of a Ray client, expected 'auto' or host:port: run the "
            "command on a machine of the cluster, or hand it in with `ray job submit`"
        )
    for name, value in {**KEEPALIVE, **QUIET}.items():
        os.environ.setdefault(name, value)
    ray = imported()
    from ray._private.services import canonicalize_bootstrap_address

    try:
        found = canonicalize_bootstrap_address(address)
    except Exception as error:
        raise EngineError(f"no Ray cluster was found at {address!r}: {_hint()}") from error
    warn_of_no_token(ray, found or address)
    if not os.environ.get("RAY_USE_TLS", "0").strip("0"):
        check_answer(found or address)
    try:
        with _patience():
            ray.init(
                address=found or address,
                log_to_driver=False,
                configure_logging=False,
                runtime_env={"env_vars": worker_environment(private=False)},
            )
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise EngineError(
            f"the Ray cluster at {address!r} did not let us in ({reason}): check its token "
            "(RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH) and that it runs the same Ray"
        ) from error
    return Path("/tmp/ray")


def warn_of_no_token(ray: Any, address: str) -> None:
    """Says what it means to join a cluster without a token, unless it listens to this machine."""
    if is_loopback(address) or asks_for_token(ray):
        return
    warnings.warn(
        f"joining the Ray cluster at {address!r} without a token: whoever reaches its ports can "
        "run code on every node and write results that pass for yours; start it with "
        "RAY_AUTH_MODE=token, and set that and its token here",
        RuntimeWarning,
        stacklevel=2,
    )


def is_loopback(address: str) -> bool:
    """Whether an address, host:port, is one that no other machine can reach."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def asks_for_token(ray: Any) -> bool:
    """Whether Ray shows a token, and expects one of all others."""
    try:
        raylet = ray._raylet
        return bool(raylet.get_authentication_mode() != raylet.AuthenticationMode.DISABLED)
    except AttributeError:
        return os.environ.get("RAY_AUTH_MODE", "").lower() not in ("", "disabled")


def check_answer(address: str) -> None:
    """Sees that something that speaks Ray's protocol answers, before Ray waits for it for minutes.

    Raises:
        EngineError: If nothing answers within five seconds.
    """
    host, _, port = address.rpartition(":")
    hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS) as link:
            link.settimeout(ANSWER_SECONDS)
            link.sendall(hello)
            answer = link.recv(9)
        if answer[3:4] != b"\4":
            raise OSError("something answers that is not Ray")
    except (OSError, ValueError) as error:
        raise EngineError(
            f"the Ray cluster at {address!r} does not answer ({error}): {_hint()}"
        ) from error


def check_installed() -> None:
    """Sees that Ray is there, without importing it: it reads its settings when it is imported."""
    if sys.modules.get("ray") is None and importlib.util.find_spec("ray") is None:
        raise EngineError(
            "the engine 'ray' needs Ray, which is not installed: pip install 'onebasin[ray]'"
        )


def imported() -> Any:
    """Ray."""
    import ray

    return ray


def worker_environment(private: bool) -> dict[str, str]:
    """The variables that workers need to compute what this process would, to the last digit.

    The number of threads is among them: how a sum is shared out changes its rounding.
    """
    found = {name: value for name, value in os.environ.items() if name.startswith(("JAX_", "XLA_"))}
    found["NPROC"] = os.environ.get("NPROC") or str(usable_cores())
    found["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS") or str(usable_cores())
    # Stages on workers wait for tasks on other nodes, as the driver does.
    found |= {name: os.environ[name] for name in KEEPALIVE if name in os.environ}
    # Workers keep their compiled programs where the engine says.
    found.pop("JAX_COMPILATION_CACHE_DIR", None)
    if "jax" in sys.modules:
        config = sys.modules["jax"].config
        for name in JAX_SETTINGS:
            value = getattr(config, name, None)
            if value is not None:
                found[name.upper()] = str(value)
    if private:
        found["PYTHONPATH"] = os.pathsep.join(
            os.path.abspath(path) for path in sys.path if not path.endswith(".zip")
        )
    return found


@contextlib.contextmanager
def _patience() -> Iterator[None]:
    """Short limits for what else Ray would wait for while it connects."""
    name = "RAY_gcs_rpc_server_connect_timeout_s"
    before = os.environ.get(name)
    os.environ[name] = "5"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _hint() -> str:
    return (
        "start one with `ray start --head`, give its host:port as the address, or leave the "
        "address out for a private cluster on this machine"
    )
