"""Helpers that a run starts itself: further processes on this machine, which end with it.

If the run is killed, they notice after the task that they are at.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

from onebasin._core.files import check_own_folder, remove

Process = subprocess.Popen[bytes]
CACHE = "jax_compilation_cache_dir"
SECONDS_TO_END = 10.0


@contextlib.contextmanager
def helpers(
    count: int, study: str, folder: Path, say: Callable[[str], None] = lambda sentence: None
) -> Iterator[list[Process]]:
    """Keeps processes that help the run in a folder, as `onebasin study --join` does.

    All share what they compile. A helper that fails leaves its tasks to the others.

    Args:
        count: How many; 0 for none.
        study: The name of the study.
        folder: The run, whose lock this process holds.
        say: Called with a sentence on each helper that failed.
    """
    if not count:
        yield []
        return
    work = check_own_folder(folder / "work")
    work.mkdir(parents=True, exist_ok=True)
    check_own_folder(work / "compiled")
    command = [sys.executable, "-m", "onebasin", "study", study, "--out", str(folder), "--join"]
    logs = [work / f"helper-{number}.log" for number in range(1, count + 1)]
    with _compiled_once(work / "compiled") as environment:
        processes = [_started(command, environment, log) for log in logs]
        try:
            yield processes
        finally:
            failed = [process.poll() for process in processes]
            _end(processes)
            for number, (code, log) in enumerate(zip(failed, logs, strict=True), 1):
                if code:
                    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
                    last = lines[-1] if lines else "it said nothing"
                    say(f"helper {number} stopped with code {code}: {last}")


def _started(command: list[str], environment: dict[str, str], log: Path) -> Process:
    # Whatever has its name is not written to: it may be a link.
    remove(log)
    with log.open("xb") as said:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )


@contextlib.contextmanager
def _compiled_once(folder: Path) -> Iterator[dict[str, str]]:
    """The environment of helpers: they and this process keep programs in one place."""
    before = jax.config.values[CACHE]
    place = before or str(folder.resolve())
    _keep_programs_in(place)
    try:
        yield {**os.environ, CACHE.upper(): place}
    finally:
        _keep_programs_in(before)


def _keep_programs_in(place: str | None) -> None:
    jax.config.update(CACHE, place)
    # Whether there is such a place is looked at once otherwise, with the first program.
    compilation_cache.reset_cache()


def _end(processes: list[Process]) -> None:
    for process in processes:
        process.terminate()
    until = time.monotonic() + SECONDS_TO_END
    for process in processes:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
