"""Populations and chains on an engine: chunks of them as tasks, each the ordinary function.

Where chunks begin and end follows from the arguments alone, and each has a key of its own: what
comes out is the same on any engine, with any number of workers, and after any interruption.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np

from onebasin.engine import Engine, Shared, Task, claim_on, run_tasks
from onebasin.infer.checks import check_key_and_problem
from onebasin.infer.problem import Problem
from onebasin.infer.question import question
from onebasin.infer.trouble import warn_of_trouble
from onebasin.posterior import Draws, Gaussian, Mixture
from onebasin.posterior.trees import num_weights
from onebasin.store.errors import StoreError
from onebasin.store.fingerprint import fingerprint
from onebasin.store.manifest import made_with, plain
from onebasin.store.sealed import Seals, is_sealed, seal_posterior

COUNTS = ("num_networks", "num_chains")
WEIGHTS_PER_TASK = 2**22
MOST = {"num_networks": 256, "num_chains": 4}

P = ParamSpec("P")
R = TypeVar("R")


def on_engine(*, version: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Lets a method run on an engine if it is given one.

    Args:
        version: Of the method: raised when the same call finds something else, so that what was
            begun before is not gone on with.
    """
    return functools.partial(_on_engine, version=version)


def _on_engine(method: Callable[P, R], version: int) -> Callable[P, R]:
    signature = inspect.signature(method)
    count = next(name for name in COUNTS if name in signature.parameters)

    @functools.wraps(method)
    def dispatched(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        check_key_and_problem(bound.arguments["key"], bound.arguments["problem"])
        given = dict(bound.arguments)
        engine = given["engine"]
        if engine is None or given[count] < 1:
            found = method(*args, **kwargs)
            warn_of_trouble(found, given)
            return found
        key, problem = given.pop("key"), given.pop("problem")
        size = engine.networks_per_task or chunk_size(problem, count)
        starts = range(0, given[count], size)
        parts = [(first, min(first + size, given[count])) for first in starts]
        keys = [key] if len(parts) == 1 else [jax.random.fold_in(key, i) for i in range(len(parts))]
        changes = [
            {count: last - first, "init": _sliced(given.get("init"), given[count], first, last)}
            for first, last in parts
        ]
        found = _run(engine, dispatched, problem, given, list(zip(keys, changes, strict=True)))
        warn_of_trouble(found, given)
        return found

    # What a task calls: the warning is for who asked for all of them.
    dispatched.quiet = method  # type: ignore[attr-defined]
    dispatched.version = version  # type: ignore[attr-defined]
    return dispatched


def each_on_engine(
    engine: Engine, method: Callable[..., Any], problem: Problem, keys: Any, arguments: Any
) -> Any:
    """A method that knows nothing of engines, once for each key."""
    return _run(engine, method, problem, arguments, [(key, {}) for key in keys])


def chunk_size(problem: Problem, count: str) -> int:
    """How many networks or chains are one task: many small ones, few large ones."""
    return max(1, min(MOST[count], WEIGHTS_PER_TASK // num_weights(problem.shapes())))


@dataclasses.dataclass(frozen=True)
class Chunk:
    """One task: where its result goes, and what it is the answer to."""

    file: str
    question: str
    key: Any
    changes: Any


def _run(
    engine: Engine,
    method: Callable[..., Any],
    problem: Problem,
    given: dict[str, Any],
    parts: list[tuple[jax.Array, dict[str, Any]]],
) -> Any:
    began = time.perf_counter()
    run = given.get("run")
    if run is not None and not isinstance(run, str | Path):
        raise ValueError(
            f"got run={run!r} with an engine, expected the path of a folder that all workers see"
        )
    folder = (Path(run) if run is not None else engine.directory / "infer").resolve()
    name = getattr(method, "__name__", "method")
    common = fingerprint(question(method, problem, given), made_with(), _grouping(given))
    chunks = []
    for number, (key, changes) in enumerate(parts):
        own = fingerprint(common, key, changes)
        file = folder / f"{name}-{number:05d}-{own[:16]}.safetensors"
        chunks.append(Chunk(str(file), own, key, changes))
    seals = Seals()
    kept = [seals.is_sealed(Path(chunk.file), chunk.question) for chunk in chunks]
    varied = parts[0][1]
    wanted = {k: v for k, v in given.items() if k not in ("engine", "run", "progress", *varied)}
    shared = engine.share((method, problem, wanted))
    tasks = (
        Task(f"{name}/{number}", compute, (shared, engine.share(chunk)), claim_on(chunk.file))
        for number, chunk in enumerate(chunks)
        if not kept[number]
    )
    for _ in run_tasks(
        engine,
        tasks,
        title=name,
        total=len(chunks),
        kept=sum(kept),
        progress=bool(given.get("progress")),
    ):
        pass
    found = [read(chunk, problem, seals) for chunk in chunks]
    return joined(found, time.perf_counter() - began)


def _grouping(given: dict[str, Any]) -> Any:
    """A budget makes the groups in which members are batched, other than on CPUs: they round so."""
    return None if jax.default_backend() == "cpu" else given.get("memory")


def compute(shared: Shared[Any], own: Shared[Chunk]) -> dict[str, Any]:
    """Does one chunk, unless its file is there, and writes that."""
    method, problem, arguments = shared.get()
    method = getattr(method, "quiet", method)
    chunk = own.get()
    path = Path(chunk.file)
    if is_sealed(path, chunk.question):
        return {"file": path.name, "kept": True}
    wanted = {**arguments, **chunk.changes}
    parameters = inspect.signature(method).parameters
    wanted = {k: v for k, v in wanted.items() if k != "init" or "init" in parameters}
    work = path.parent / "work" / path.stem
    if "run" not in parameters:
        found = method(jax.random.clone(chunk.key), problem, **wanted)
    else:
        try:
            found = method(jax.random.clone(chunk.key), problem, run=work, **wanted)
        except StoreError:
            # A worker that was given up may still write there: its folder is its own.
            found = method(jax.random.clone(chunk.key), problem, **wanted)
    info = {k: v for k, v in (found.info or {}).items() if k != "seconds"}
    components = found.components if isinstance(found, Mixture) else ()
    own_info = [_own_info(component) for component in components]
    seal_posterior(
        path,
        chunk.question,
        dataclasses.replace(found, info=info),
        components=json.dumps(plain(own_info, "info")),
    )
    shutil.rmtree(work, ignore_errors=True)
    return {"file": path.name, "kept": False}


def read(chunk: Chunk, problem: Problem, seals: Seals) -> Any:
    """The posterior of one chunk, from its file."""
    file = Path(chunk.file)
    # What a user's own method is given in a problem's place need not have running statistics.
    like = getattr(problem, "network_shapes", problem.shapes)()
    found, notes = seals.unseal_posterior(file, chunk.question, like=like)
    if isinstance(found, Mixture):
        own = json.loads(notes["components"])
        pairs = zip(found.components, own, strict=True)
        parts = [dataclasses.replace(part, info=info) for part, info in pairs]
        return dataclasses.replace(found, components=parts)
    if isinstance(found, Draws):
        return (
            jax.tree.map(np.array, found)
            if found.info is None
            else dataclasses.replace(jax.tree.map(np.array, found), info=found.info)
        )
    return found


def joined(parts: list[Any], seconds: float) -> Draws | Gaussian | Mixture:
    """One posterior out of those of all chunks."""
    info = {**_joined_info([part.info or {} for part in parts]), "seconds": seconds}
    if all(isinstance(part, Draws) for part in parts):
        draws = parts[0] if len(parts) == 1 else Draws.concatenate(parts, renumber=True)
        return dataclasses.replace(draws, info=info)
    if not all(isinstance(part, Gaussian | Mixture) for part in parts):
        kinds = sorted({type(part).__name__ for part in parts})
        raise TypeError(f"the method returned {', '.join(kinds)}, expected Draws or Gaussians")
    if len(parts) == 1 and isinstance(parts[0], Gaussian):
        return dataclasses.replace(parts[0], info={**info, **_own_info(parts[0])})
    found: list[Gaussian] = []
    for part in parts:
        inside = part.components if isinstance(part, Mixture) else (part,)
        found += [dataclasses.replace(c, info={**info, **_own_info(c)}) for c in inside]
    return Mixture(found, info=info)


def _joined_info(infos: list[dict[str, Any]]) -> dict[str, Any]:
    """What is known of all chunks: curves side by side, what is equal once, the rest as a list."""
    found: dict[str, Any] = {}
    for name in infos[0]:
        values = [info.get(name) for info in infos]
        if name == "noise":
            continue
        if isinstance(values[0], list):
            # A curve is (step, member), a number of each member (member,).
            arrays = [np.asarray(value) for value in values]
            found[name] = np.concatenate(arrays, axis=min(1, arrays[0].ndim - 1))
        else:
            found[name] = values[0] if all(v == values[0] for v in values) else values
    return found


def _own_info(component: Gaussian) -> dict[str, Any]:
    return {k: v for k, v in (component.info or {}).items() if k == "noise"}


def _sliced(init: Any, count: int, first: int, last: int) -> Any:
    """Where the members of a chunk start, out of where all do."""
    if isinstance(init, Draws) and len(init) == count:
        return init[first:last]
    return init
