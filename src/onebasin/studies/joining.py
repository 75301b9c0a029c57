"""Helping a run: a second process shares its tasks, and leaves all else to the first.

What is found does not depend on who did which task. The process that runs the study waits for tasks
that a helper has begun, takes over those of a helper that died, and alone finishes stages. A helper
goes through the same stages and does the tasks that nobody has begun; what a stage does with their
results, where it is little, it may do too, for nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onebasin.engine import LocalEngine, Superseded
from onebasin.store.lock import is_held
from onebasin.store.manifest import made_with
from onebasin.studies.errors import StudyError
from onebasin.studies.folder import kept, read_run, work_of
from onebasin.studies.step import BEGUN, Step

if TYPE_CHECKING:
    from onebasin.studies.pipeline import Stage, Study

PAUSE = 1.0


def help_run(
    study: Study[Any],
    config: Any,
    out: str | Path,
    *,
    stages: Sequence[str] | None = None,
    progress: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
) -> int:
    """Does tasks of a study that another process is running, until its stages are done.

    Args:
        study: The study.
        config: That of the run.
        out: Its folder.
        stages: Names of the stages to help with; all that the run does if left out. Those whose
            work is no tasks are left to it.
        progress: Show bars.
        say: Called with a sentence at each stage.

    Returns:
        How many tasks were done here.

    Raises:
        StudyError: If nobody is running this study there, or with other versions or on another kind
            of device.
    """
    folder = Path(out)
    wanted = study.fingerprints(config)
    doing = _check(study, folder, wanted)
    done = 0
    for stage in study.chosen(stages):
        asked = stage.name in doing if stages is None else stage.name in stages
        if asked and stage.tasks and is_held(folder):
            done += _help_stage(stage, wanted, config, folder, progress, say)
    return done


def _help_stage(
    stage: Stage,
    wanted: dict[str, str],
    config: Any,
    folder: Path,
    progress: bool,
    say: Callable[[str], None],
) -> int:
    def is_done(name: str) -> bool:
        return _fingerprint(folder, name) == wanted[name]

    while not all(is_done(name) for name in stage.needs):
        if not is_held(folder):
            return 0
        time.sleep(PAUSE)
    if is_done(stage.name):
        say(f"{stage.name}: done before")
        return 0
    say(f"{stage.name}: helping")
    work = work_of(folder, stage.name, wanted[stage.name])
    engine = LocalEngine(
        folder / "work" / "engine",
        networks_per_task=config.networks_per_task,
        retries=0,
        superseded=lambda: is_done(stage.name) or not is_held(folder),
    )
    try:
        stage.work(Helping(stage, config, folder, work, work, progress, engine))
    except Superseded:
        pass
    except Exception:
        # The run removes what its tasks wrote when the stage is whole.
        if not is_done(stage.name):
            raise
    say(f"{stage.name}: {engine.done} tasks done here")
    return engine.done


class Helping(Step):
    """What a stage is given by a helper: the run keeps what is found, and shows it."""

    def _next_of(self, names: Sequence[str]) -> str:
        """One that nobody has begun, so that programs are compiled side by side; else the first."""
        for name in names:
            try:
                (self.work / f"{BEGUN}{name}").mkdir(parents=True)
            except FileExistsError:
                continue
            return name
        return names[0]

    def end_tasks(self) -> None:
        """Nothing is left to help with."""
        raise Superseded

    def save(self, name: str, posterior: Any) -> None:
        """Left to the run."""

    def save_arrays(self, name: str, **arrays: Any) -> None:
        """Left to the run."""

    def save_notes(self, name: str, **notes: Any) -> None:
        """Left to the run."""


def _fingerprint(folder: Path, name: str) -> str | None:
    """What a stage that is there was made from; its files are looked for and not read."""
    content = kept(folder, name)
    if content is None or not all(
        (folder / "stages" / name / x).exists() for x in content["files"]
    ):
        return None
    return str(content["fingerprint"])


def _check(study: Study[Any], folder: Path, wanted: dict[str, str]) -> list[str]:
    """Refuses what cannot be helped; the stages that the run is doing."""
    if sys.platform == "win32":
        raise StudyError("runs cannot be helped on Windows, whose locks are others")
    written = read_run(folder)
    if written["study"] != study.name:
        raise StudyError(
            f"{folder} is a run of the study {written['study']!r}, not of {study.name!r}"
        )
    if not is_held(folder):
        raise StudyError(
            f"no process is running the study in {folder}: leave out --join to run it here"
        )
    if {stage["name"]: stage.get("fingerprint") for stage in written["stages"]} != wanted:
        raise StudyError(
            f"the run in {folder} has another configuration, or another version of onebasin: help "
            "it with its own"
        )
    doing = written.get("doing", {})
    if doing.get("engine") != "local":
        raise StudyError(
            f"the run in {folder} is not on the engine 'local', whose tasks alone can be shared"
        )
    for name, here in made_with().items():
        there = written.get("versions", {}).get(name)
        if here != there:
            raise StudyError(
                f"the run in {folder} has {name} {there!r} and this process {here!r}: its tasks "
                "would not be the same"
            )
    return list(doing.get("stages", []))
