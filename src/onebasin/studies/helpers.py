"""Helpers that a run starts itself: further processes on this machine, which end with it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jax

CACHE = "jax_compilation_cache_dir"
SECONDS_TO_END = 10.0


@contextlib.contextmanager
def helpers(
    count: int, study: str, folder: Path, say: Callable[[str], None] = lambda sentence: None
) -> Iterator[None]:
    """Keeps processes that help the run in a folder, as `onebasin study --join` does.

    All share what they compile. A helper that fails leaves its tasks to the others.

    Args:
        count: How many; 0 for none.
        study: The name of the study.
        folder: The run, whose lock this process holds.
        say: Called with a sentence on each helper that failed.
    """
    if not count:
        yield
        return
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "onebasin", "study", study, "--out", str(folder), "--join"]
    with _compiled_once(work / "compiled") as environment, contextlib.ExitStack() as stack:
        processes = []
        for number in range(count):
            log = stack.enter_context((work / f"helper-{number}.log").open("w+", encoding="utf-8"))
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            stack.callback(_end, process)
            processes.append((process, log))
        yield
        for number, (process, log) in enumerate(processes, 1):
            if process.poll():
                log.seek(0)
                last = (log.read().strip().splitlines() or ["it said nothing"])[-1]
                say(f"helper {number} stopped with code {process.returncode}: {last}")


@contextlib.contextmanager
def _compiled_once(folder: Path) -> Iterator[dict[str, str]]:
    """The environment of helpers: they and this process keep programs in one place."""
    before = jax.config.values[CACHE]
    place = before or str(folder.resolve())
    jax.config.update(CACHE, place)
    try:
        yield {**os.environ, CACHE.upper(): place}
    finally:
        jax.config.update(CACHE, before)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
