"""Helping a run: a second process does tasks of its stages, and leaves all else to the first.

What is found does not depend on who did which task. The process that runs the study waits for tasks
that a helper has begun, takes over those of a helper that died, and alone finishes stages.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onebasin.engine import LocalEngine, Superseded
from onebasin.store.errors import StoreError
from onebasin.store.lock import Lock
from onebasin.studies.errors import StudyError
from onebasin.studies.folder import finished, read_run
from onebasin.studies.step import Step

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
) -> None:
    """Does tasks of a study that another process is running, until its stages are done.

    Args:
        study: The study.
        config: That of the run.
        out: Its folder.
        stages: Names of the stages to help with; those that the run does are waited for. All if
            left out.
        progress: Show bars.
        say: Called with a sentence at each stage.

    Raises:
        StudyError: If nobody is running this study there.
    """
    folder = Path(out)
    wanted = study.fingerprints(config)
    _check(study, folder, wanted)
    for stage in study.chosen(stages):
        if stages is None or stage.name in stages:
            _help_stage(stage, wanted, config, folder, progress, say)


def _help_stage(
    stage: Stage,
    wanted: dict[str, str],
    config: Any,
    folder: Path,
    progress: bool,
    say: Callable[[str], None],
) -> None:
    def done(name: str) -> bool:
        found = finished(folder, name)
        return found is not None and found["fingerprint"] == wanted[name]

    while not all(done(name) for name in stage.needs):
        if not is_running(folder):
            raise StudyError(f"the run in {folder} has ended before its stage {stage.name!r} began")
        time.sleep(PAUSE)
    if done(stage.name):
        say(f"{stage.name}: done before")
        return
    say(f"{stage.name}: helping")
    place = Path(tempfile.mkdtemp(prefix="onebasin-help-"))
    work = folder / "work" / f"{stage.name}-{wanted[stage.name][:12]}"
    engine = LocalEngine(
        folder / "work" / "engine",
        networks_per_task=config.networks_per_task,
        retries=0,
        superseded=lambda: done(stage.name),
    )
    try:
        work.mkdir(parents=True, exist_ok=True)
        stage.work(Step(stage, config, folder, place, work, progress, engine))
    except Superseded:
        pass
    except Exception:
        # The run removes what its tasks wrote when the stage is whole.
        if not done(stage.name):
            raise
    finally:
        shutil.rmtree(place, ignore_errors=True)
    say(f"{stage.name}: {engine.done} tasks done here, none is left")


def is_running(folder: Path) -> bool:
    """Whether some process is running the study in a folder."""
    try:
        Lock(folder).release()
    except StoreError:
        return True
    return False


def _check(study: Study[Any], folder: Path, wanted: dict[str, str]) -> None:
    written = read_run(folder)
    if written["study"] != study.name:
        raise StudyError(
            f"{folder} is a run of the study {written['study']!r}, not of {study.name!r}"
        )
    if not is_running(folder):
        raise StudyError(
            f"no process is running the study in {folder}: leave out --join to run it here"
        )
    if any(stage["fingerprint"] != wanted[stage["name"]] for stage in written["stages"]):
        raise StudyError(
            f"the run in {folder} has another configuration, or another version of onebasin: help "
            "it with its own"
        )
