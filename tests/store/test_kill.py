"""A process that is killed at any moment: the run goes on, and ends as if nothing had happened."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onebasin.store import Run

STEPS = 150
WORK = f"""
import sys
import numpy as np
from onebasin.store import Run

def advance(state):
    generator = np.random.default_rng(state["step"])
    return {{"step": state["step"] + 1, "total": state["total"] + generator.normal(size=(40, 50))}}

run = Run.continue_or_create(sys.argv[1], {{"steps": {STEPS}}})
state = {{"step": 0, "total": np.zeros((40, 50))}}
if run.has("state"):
    state = run.get("state", like=state)
print("begun", flush=True)
while state["step"] < {STEPS}:
    state = advance(state)
    with run.transaction() as t:
        t.append("draws", {{"params": {{"w": state["total"][:3]}}}})
        t.put("state", state)
        t.note(done=state["step"])
"""


def work(folder: Path, wait: float | None = None) -> bool:
    """Runs the program, and kills it after some seconds of work; whether it came to its end."""
    command = [sys.executable, "-c", WORK, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        if wait is not None:
            time.sleep(wait)
            os.kill(process.pid, signal.SIGKILL)
        return process.wait(timeout=60) == 0


def test_killed_at_random_moments(tmp_path: Path) -> None:
    chance = random.Random(0)
    killed, undisturbed = tmp_path / "killed", tmp_path / "undisturbed"
    assert work(undisturbed)
    expected = Run.open(undisturbed).stream("draws")
    for _ in range(4):
        work(killed, wait=chance.uniform(0, 0.15))
        run = Run.open(killed)
        run.check()
        done = run.notes.get("done", 0)
        assert run.has("state") == (done > 0)
        if done:
            kept = run.stream("draws")
            assert len(kept) == 3 * done
            assert np.array_equal(kept.leaf("params/w"), expected.leaf("params/w", slice(3 * done)))
            assert run.get("state")["step"] == done
    assert work(killed)
    run = Run.open(killed)
    run.check()
    assert np.array_equal(run.stream("draws").leaf("params/w"), expected.leaf("params/w"))
    files = {path.name for path in killed.rglob("*") if path.is_file()}
    assert files == {path.name for path in undisturbed.rglob("*") if path.is_file()}


def test_every_moment_between_two_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder as a kill would leave it before and after each change of a name or a file."""
    folder = tmp_path / "run"
    moments: list[Path] = []

    def watched(change: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **options: Any) -> Any:
            for when in ("before", "after"):
                moments.append(tmp_path / f"{len(moments)}-{when}-{change.__name__}")
                shutil.copytree(folder, moments[-1])
                if when == "before":
                    result = change(*arguments, **options)
            return result

        return act

    def step(run: Run) -> None:
        done = run.notes.get("done", 0)
        with run.transaction() as t:
            t.append("draws", {"w": np.full(2, done)})
            t.put("state", {"done": done + 1})
            t.note(done=done + 1)

    with Run.create(folder, {}) as run, monkeypatch.context() as patch:
        step(run)
        for change in (os.replace, os.fsync, os.unlink):
            patch.setattr(os, change.__name__, watched(change))
        step(run)
        step(run)
    assert len(moments) > 20
    seen = set()
    for moment in moments:
        Run.open(moment).check()
        run = Run.continue_or_create(moment, {})
        seen.add(run.notes["done"])
        while run.notes["done"] < 4:
            step(run)
        run.check()
        assert run.stream("draws")[:]["w"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
        assert run.get("state", like={"done": 0}) == {"done": 4}
        assert len(list(moment.rglob("*.safetensors"))) == 6
        assert not list(moment.rglob("*.partial"))
    assert seen == {1, 2, 3}
