"""All that one can do with a folder of ours, each a call of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from abuse.readers.runs import CONFIG, STATE
from abuse.toy import ToyConfig, toy
from onebasin import cli, report, studies
from onebasin.store import Run

Operation = Callable[[Path], object]


def _add(folder: Path, put: bool) -> None:
    """A transaction, which removes what the one before no longer needs."""
    with Run.continue_or_create(folder, CONFIG, {"key": 1}) as run, run.transaction() as t:
        if put:
            t.put("state", {**STATE, "step": 7})
        else:
            t.append("draws", {"params": {"w": np.ones((1, 3, 4)), "b": np.ones((1, 3))}})
        t.note(more=1)


def _fail(folder: Path) -> None:
    """A transaction that is given up."""
    with Run.continue_or_create(folder, CONFIG, {"key": 1}) as run, run.transaction() as t:
        t.append("draws", {"params": {"w": np.ones((1, 3, 4)), "b": np.ones((1, 3))}})
        raise Undone("this transaction is given up")


class Undone(ValueError):
    """Raised to give a transaction up."""


Undone.__module__ = "onebasin"


def _read(folder: Path, damaged: str) -> None:
    run = Run.open(folder, damaged=damaged)  # type: ignore[arg-type]
    for name in run.streams():
        run.stream(name)[:]
        run.readable(name)[:]
        run.draws(name)
    for name in run.states():
        run.get(name)
    _ = run.config, run.seeds, run.notes, run.versions, repr(run)


RUNS: dict[str, Operation] = {
    "open": lambda f: _read(f, "error"),
    "open, damaged skipped": lambda f: _read(f, "skip"),
    "check": lambda f: Run.open(f, damaged="skip").check(),
    "create": lambda f: Run.create(f, CONFIG, {"key": 1}).close(),
    "continue": lambda f: Run.continue_or_create(f, CONFIG, {"key": 1}).close(),
    "put": lambda f: _add(f, True),
    "append": lambda f: _add(f, False),
    "give up": _fail,
    "put again": lambda f: _add(f, True),
}


class Refused(ValueError):
    """A command that ended with code 2 and a sentence."""


Refused.__module__ = "onebasin.cli"


def _command(*arguments: object) -> None:
    done = CliRunner().invoke(cli.app, [*map(str, arguments)])
    if done.exit_code == 2 and "Traceback" not in done.stderr:
        raise Refused(" ".join(done.stderr.split()))
    if done.exit_code:
        raise RuntimeError(f"code {done.exit_code}: {done.exception!r} {done.stderr[-300:]}")


STUDIES: dict[str, Operation] = {
    "read_run": lambda f: studies.read_run(f),
    "sections": lambda f: studies.sections(f),
    "report": lambda f: report.build([f]),
    "report to a file": lambda f: report.build([f], f.parent / "page.html"),
    "onebasin report": lambda f: _command("report", f, "--out", f.parent / "page2.html"),
    "copy_results": lambda f: studies.copy_results(f, f.parent / "kept"),
    "copy_results again": lambda f: studies.copy_results(f, f.parent / "kept"),
    "one stage": lambda f: toy.run(ToyConfig(), f, stages=["one"]),
    "all stages": lambda f: toy.run(ToyConfig(), f),
    "all stages anew": lambda f: toy.run(ToyConfig(first=3), f),
    "onebasin report in the run": lambda f: _command("report", f),
    "onebasin study": lambda f: _command("study", "compact", "--out", f, "--stages", "hmc"),
    "help": lambda f: studies.help_run(toy, ToyConfig(), f),
}
KEPT: dict[str, Operation] = {
    "copy_results": lambda f: studies.copy_results(f, f.parent / "kept"),
    "report of the copy": lambda f: report.build([f.parent / "kept"]),
    "copy of the copy": lambda f: studies.copy_results(f.parent / "kept", f.parent / "kept2"),
}
