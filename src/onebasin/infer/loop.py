"""The host loop: compiled chunks of steps, a bar, and a run on disk that survives the process.

A method is one or more phases. A phase repeats a step, `step(data, state, number) -> (state,
outputs)`, where all randomness comes from keys and the step's number: what comes out does not
depend on where chunks begin and end. Outputs have the member of the population as first axis.

Steps are frozen dataclasses: two that are equal share one compiled program.
"""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin.infer.population import shares
from onebasin.infer.problem import Problem
from onebasin.infer.progress import Bar
from onebasin.infer.question import open_run, question
from onebasin.store import Run, StoreError

CHUNK_SECONDS = 2.0
CHUNK_BYTES = 2**27
MAX_CHUNK = 256
_COMPILED: set[Any] = set()
Step = Callable[[Any, Any, jax.Array], tuple[Any, dict[str, Any]]]


class DivergenceError(ArithmeticError):
    """A run left the real numbers.

    Attributes:
        outputs: The outputs of the steps before.
        draws: What was drawn before, or None where nothing was.
    """

    def __init__(self, message: str, outputs: dict[str, Any] | None = None, draws: Any = None):
        super().__init__(message)
        self.outputs = outputs
        self.draws = draws


class Journal:
    """Runs the phases of one method; with a run on disk it continues where that stopped.

    Args:
        run: The run to write to, or None.
        progress: Whether to draw a bar.
        chunk: Steps between two looks at the clock; by default as many as take two seconds.
    """

    def __init__(self, run: Run | None, progress: bool = False, chunk: int | None = None):
        if chunk is not None and chunk < 1:
            raise ValueError(f"got chunk={chunk}, expected at least one step")
        self.run = run
        self.progress = progress
        self.chunk = chunk
        self.started = time.perf_counter()

    @classmethod
    def open(
        cls,
        method: Callable[..., Any],
        key: jax.Array,
        problem: Problem,
        arguments: Mapping[str, Any],
        run: str | Path | Run | None,
        progress: bool,
        chunk: int | None,
    ) -> Journal:
        """A journal in a folder, or in no folder; one of another question is refused."""
        if run is None:
            return cls(None, progress, chunk)
        asked = question(method, problem, arguments)
        return cls(open_run(run, asked, key, problem), progress, chunk)

    @property
    def seconds(self) -> float:
        """Seconds since the journal was opened, and those of the processes before."""
        earlier = 0.0 if self.run is None else float(self.run.notes.get("seconds before", 0.0))
        return earlier + time.perf_counter() - self.started

    def phase(
        self,
        name: str,
        step: Step,
        data: Any,
        state: Any,
        length: int,
        *,
        show: str = "loss",
        keep: bool = True,
        owned: bool = False,
        most: int | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Repeats a step.

        Args:
            name: What the phase is called, on the bar and on disk.
            step: The step, a frozen dataclass.
            data: What all steps read, put on the device once.
            state: Where the first step starts.
            length: How many steps.
            show: The output that the bar shows, and that must stay finite.
            keep: Whether outputs are collected.
            owned: Whether the first state may be used up, so that there is one of it at a time.
            most: Bytes of outputs before they are collected.

        Returns:
            The last state, and the outputs of all steps, (step, member, ...).

        Raises:
            DivergenceError: If the output `show` becomes NaN or infinite.
        """
        shapes = jax.eval_shape(step, data, state, jnp.zeros((), jnp.int32))[1]
        size = sum(int(np.prod(s.shape)) * s.dtype.itemsize for s in jax.tree.leaves(shapes))
        # Not the length: phases of different lengths share a program.
        most = CHUNK_BYTES if most is None else min(most, CHUNK_BYTES)
        capacity = max(1, min(MAX_CHUNK, most // max(size, 1)))
        done, state = self._restored(name, state, step)
        parts: list[Any] = []
        count, rate = 1, None
        with Bar(name, length, done, enabled=self.progress) as bar:
            while done < length:
                count = min(self.chunk or count, capacity, length - done)
                began = time.perf_counter()
                state, buffer = _by_cores(step, capacity, data, state, done, count, owned)
                wanted = buffer if keep else {show: buffer[show]}
                outputs = jax.tree.map(lambda x, n=count: np.asarray(x)[:n].copy(), wanted)
                seconds = time.perf_counter() - began
                good = _finite_steps(outputs[show])
                if good < count:
                    # Not saved: the run on disk holds whole chunks, and would repeat this one.
                    parts.append(jax.tree.map(lambda x, n=good: x[:n], outputs))
                    raise DivergenceError(
                        f"{name} left the real numbers at step {done + good + 1} of {length}: "
                        f"{show} is no longer finite",
                        self._collected(name, parts, shapes) if keep else None,
                    )
                if keep and self.run is None:
                    parts.append(outputs)
                self._save(name, step, state, outputs, done + count, keep)
                done += count
                bar.update(done, {show: float(np.mean(outputs[show][-1]))})
                # The first chunk compiled; it says nothing of the speed.
                if rate is not None or count > 1:
                    rate = seconds / count
                aim = 8 * count if rate is None else CHUNK_SECONDS / max(rate, 1e-9)
                count = max(1, min(int(aim), 8 * count))
        return state, self._collected(name, parts, shapes) if keep else {}

    def _restored(self, name: str, state: Any, step: Step) -> tuple[int, Any]:
        if self.run is None or not self.run.has(f"{name}-state"):
            return 0, state
        group, before = _group(step), self.run.notes.get(f"{name} group")
        if group != before:
            raise StoreError(
                f"the run in {self.run.path} was begun with {before} networks or chains in one "
                f"program and this budget lets {group} in, which round otherwise: pass the same "
                "`memory`, or name another folder."
            )
        return int(self.run.notes[f"{name} done"]), self.run.get(f"{name}-state", like=state)

    def _save(self, name: str, step: Step, state: Any, outputs: Any, done: int, keep: bool) -> None:
        if self.run is None:
            return
        with self.run.transaction() as t:
            if keep:
                t.append(name, _flat(outputs))
            t.put(f"{name}-state", state)
            known = {f"{name} done": done, f"{name} group": _group(step)}
            t.note(**known, **{"seconds before": self.seconds})
            self.started = time.perf_counter()

    def _collected(self, name: str, parts: list[Any], shapes: Any) -> dict[str, Any]:
        """Outputs of all steps, (step, member, ...): those on disk, then those in memory."""
        if self.run is not None and name in self.run.streams():
            members = jax.tree.leaves(shapes)[0].shape[0]
            like = jax.tree.map(lambda s: np.zeros(s.shape[1:], s.dtype), shapes)
            stacked = self.run.stream(name, like={**like, "mode": np.zeros((), np.int32)})[:]
            del stacked["mode"]
            stored = jax.tree.map(lambda x: x.reshape(-1, members, *x.shape[1:]), stacked)
            parts = [stored, *parts]
        if len(parts) < 2:
            return parts[0] if parts else {}
        return jax.tree.map(lambda *x: np.concatenate(x), *parts)


def _group(step: Step) -> int:
    """How many members are batched: it is in the last digits of what comes out."""
    return int(getattr(step, "group", 1))


def _by_cores(
    step: Step, capacity: int, data: Any, state: Any, start: int, count: int, owned: bool
) -> Any:
    """`count` steps; members that go one by one, and do not see each other, on all cores.

    The first time they take turns: one compiles for all.
    """
    alone = getattr(step, "apart", False) and getattr(step, "group", 0) == 1
    members = jax.tree.leaves(state)[0].shape[0]
    parts = shares(members) if alone else 1
    advance = _advance_owned if owned else _advance
    if parts == 1:
        return advance(step, capacity, data, state, start, count)
    size = members // parts

    def own(part: int) -> Any:
        cut = jax.tree.map(lambda x: x[part * size : (part + 1) * size], state)
        return jax.block_until_ready(advance(step, capacity, data, cut, start, count))

    program = (step, capacity, size)
    with concurrent.futures.ThreadPoolExecutor(parts if program in _COMPILED else 1) as pool:
        states, buffers = zip(*pool.map(own, range(parts)), strict=True)
    _COMPILED.add(program)
    return (
        jax.tree.map(lambda *x: jnp.concatenate(x), *states),
        jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), *buffers),
    )


def _steps(step: Step, capacity: int, data: Any, state: Any, start: Any, count: Any) -> Any:
    """`count` steps from `start`; the number is dynamic, so that one program serves all chunks."""
    shapes = jax.eval_shape(step, data, state, start)[1]
    buffer = jax.tree.map(lambda s: jnp.zeros((capacity, *s.shape), s.dtype), shapes)

    def body(i: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        state, buffer = carry
        state, outputs = step(data, state, start + i)
        return state, jax.tree.map(lambda b, x: b.at[i].set(x), buffer, outputs)

    return jax.lax.fori_loop(0, count, body, (state, buffer))


_advance = jax.jit(_steps, static_argnums=(0, 1))
_advance_owned = jax.jit(_steps, static_argnums=(0, 1), donate_argnums=3)


def _finite_steps(values: np.ndarray) -> int:
    """How many steps came before the first whose value is not finite."""
    bad = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
    return int(np.argmax(bad)) if bad.any() else len(values)


def _flat(outputs: dict[str, Any]) -> dict[str, Any]:
    """Steps and members as one axis of draws, with the member as the mode."""
    steps, members = jax.tree.leaves(outputs)[0].shape[:2]
    flat = jax.tree.map(lambda x: x.reshape(steps * members, *x.shape[2:]), outputs)
    return {**flat, "mode": np.tile(np.arange(members, dtype=np.int32), steps)}


def by_member(outputs: Any) -> Any:
    """(step, member, ...) as (draw, ...), all of one member's before the next's."""
    return jax.tree.map(
        lambda x: np.swapaxes(x, 0, 1).reshape(x.shape[0] * x.shape[1], *x.shape[2:]), outputs
    )


def modes(steps: int, members: int) -> np.ndarray:
    """The member of each draw in the order of `by_member`."""
    return np.repeat(np.arange(members, dtype=np.int32), steps)


def summary(journal: Journal, **found: Any) -> dict[str, Any]:
    """What is known of a run, with the seconds that it took."""
    return {**found, "seconds": journal.seconds}
