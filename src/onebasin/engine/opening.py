"""Engines by name."""

from __future__ import annotations

from pathlib import Path

from onebasin.engine.errors import EngineError
from onebasin.engine.interface import Engine
from onebasin.engine.local import LocalEngine

ENGINES = ("local", "ray")


def open_engine(
    name: str = "local",
    *,
    directory: str | Path | None = None,
    address: str | None = None,
    workers: int | None = None,
    memory: int | None = None,
    networks_per_task: int | None = None,
    retries: int = 2,
) -> Engine:
    """Opens an engine; close it, or use it as a context.

    Args:
        name: "local" or "ray".
        directory: A folder that all workers see; a temporary one if left out, which a cluster of
            several machines cannot have.
        address: Of a running Ray cluster, "auto" or "host:port"; without it "ray" starts a private
            one on this machine.
        workers: Tasks at a time on a private cluster; as many as there are cores if left out.
        memory: Bytes that a task may take, on the GPU where there is one: so many tasks share one.
        networks_per_task: Networks, chains or draws of a task; left to each method if left out.
        retries: How often a failed task is tried again.

    Raises:
        EngineError: If there is no such engine, or it cannot be opened.

    Example:
        >>> from onebasin.engine import open_engine
        >>> with open_engine("local") as engine:
        ...     engine.slots
        1
    """
    if networks_per_task is not None and networks_per_task < 1:
        raise EngineError(f"got networks_per_task={networks_per_task}, expected at least one")
    if name == "local":
        if address is not None:
            raise EngineError(
                f"got the address {address!r} for the engine 'local', expected it with 'ray'"
            )
        return LocalEngine(directory, networks_per_task=networks_per_task, retries=retries)
    if name == "ray":
        from onebasin.engine.joining import open_ray

        return open_ray(
            directory,
            address,
            workers,
            memory,
            networks_per_task=networks_per_task,
            retries=retries,
        )
    raise EngineError(f"got the engine {name!r}, expected one of {', '.join(ENGINES)}")
