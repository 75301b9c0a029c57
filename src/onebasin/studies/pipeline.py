"""A study as named stages in a folder: what is done stays done, what changed is done again.

Each stage has a fingerprint: the configuration that it reads, and the fingerprints of the stages
that it needs. Its folder appears in one step when it is finished, so that a study may be stopped at
any moment; inside a stage, inference goes on from its last chunk.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import math
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic

from onebasin._core.files import FileError, check_own_folder, read_bytes, remove, sha256_of
from onebasin.engine import Engine
from onebasin.store.lock import Lock
from onebasin.store.manifest import now, versions
from onebasin.studies.config import Config, StudyConfig
from onebasin.studies.errors import StudyError
from onebasin.studies.folder import (
    FORMAT,
    SECTION,
    STAGE,
    claim,
    machine,
    put_in_place,
    work_of,
    write_run,
)
from onebasin.studies.helpers import helpers
from onebasin.studies.keeping import write_tables
from onebasin.studies.notes import sealed
from onebasin.studies.order import in_parallel, one_by_one, to_look_at
from onebasin.studies.sources import sources
from onebasin.studies.step import BEGUN, Step


@dataclasses.dataclass(frozen=True)
class Stage:
    """One step of a study.

    Attributes:
        name: Its name, and that of its folder.
        title: The title of what it finds.
        work: The function that does it.
        needs: Stages whose results it reads.
        reads: Fields of the configuration that it depends on; those that all studies have are
            always among them.
        version: Raised when the code changes what it finds.
        tasks: Whether its work is tasks, which other processes can share.
    """

    name: str
    title: str
    work: Callable[[Step], None]
    needs: tuple[str, ...]
    reads: tuple[str, ...]
    version: int
    tasks: bool = False


@dataclasses.dataclass
class Study(Generic[Config]):
    """A published comparison, or one's own, as a pipeline.

    Attributes:
        name: As the command line calls it.
        title: The title of its report.
        text: What it asks, in a few sentences.
        config: The type of its configuration.
    """

    name: str
    title: str
    text: str
    config: type[Config]
    stages: list[Stage] = dataclasses.field(default_factory=list)

    def stage(
        self,
        title: str,
        *,
        needs: tuple[str, ...] = (),
        reads: tuple[str, ...] = (),
        version: int = 1,
        tasks: bool = False,
    ) -> Callable[[Callable[[Step], None]], Callable[[Step], None]]:
        """Adds a function as the next stage, under the function's name."""

        def add(work: Callable[[Step], None]) -> Callable[[Step], None]:
            name = work.__name__.replace("_", "-")
            unknown = set(needs) - {stage.name for stage in self.stages}
            fields = set(reads) - set(self.config.model_fields)
            if unknown or fields:
                raise ValueError(f"stage {name!r} asks for unknown {sorted(unknown | fields)}")
            self.stages.append(Stage(name, title, work, needs, reads, version, tasks))
            return work

        return add

    def fingerprints(self, config: StudyConfig) -> dict[str, str]:
        """What each stage's result is determined by, as a hash."""
        values = config.model_dump(mode="json")
        found: dict[str, str] = {}
        for stage in self.stages:
            content = {
                "study": self.name,
                "stage": stage.name,
                "version": [FORMAT, stage.version],
                "config": {
                    name: values[name] for name in (*StudyConfig.model_fields, *stage.reads)
                },
                "sources": sources(config),
                "needs": {name: found[name] for name in stage.needs},
            }
            del content["config"]["memory"]  # type: ignore[attr-defined]
            # What came later, and changes nothing where it is left out.
            for name in ("networks_per_task", "train_in"):
                if values.get(name) is None:
                    content["config"].pop(name, None)  # type: ignore[attr-defined]
            text = json.dumps(content, sort_keys=True)
            found[stage.name] = hashlib.sha256(text.encode()).hexdigest()
        return found

    def run(
        self,
        config: Config,
        out: str | Path,
        *,
        progress: bool = False,
        say: Callable[[str], None] = lambda sentence: None,
        engine: Engine | Callable[[Path], Engine] | None = None,
        stages: Sequence[str] | None = None,
        num_helpers: int = 0,
    ) -> Path:
        """Does what is not done yet.

        Args:
            config: What to do.
            out: The folder: new, or of the same study.
            progress: Show bars.
            say: Called with a sentence at each stage.
            engine: Where populations, chains and alignments run as tasks, and stages that do not
                need each other, if it has workers; or a function that opens it in a folder, which
                is removed when all is done. None for here, each as one program.
            stages: Names of the stages to do, with those that they need; all if left out. The
                others may be done by a later call, perhaps on another machine. What only finished
                stages needed is not looked at: its files may be gone.
            num_helpers: Further processes that share the tasks of this one; they want the engine
                "local", and on a GPU XLA_PYTHON_CLIENT_PREALLOCATE=false in the environment.

        Returns:
            The folder.

        Raises:
            StudyError: If the folder is something else, if there is no such stage, or if the disk
                is full.
        """
        folder = Path(out)
        named = [stage.name for stage in self.stages] if stages is None else list(stages)
        chosen = self.chosen(stages)
        claim(folder, self.name)
        try:
            lock = Lock(folder)
            try:
                if engine is None or not callable(engine):
                    self._run(config, folder, progress, say, engine, chosen, named, num_helpers)
                else:
                    with engine(_own(folder / "work" / "engine")) as opened:
                        self._run(config, folder, progress, say, opened, chosen, named, num_helpers)
            finally:
                lock.release()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            free = shutil.disk_usage(folder).free
            raise StudyError(
                f"the disk of {folder} is full ({free:,} bytes free): make room and give the same "
                "command again; every finished stage is kept"
            ) from error
        return folder

    def chosen(self, names: Sequence[str] | None) -> list[Stage]:
        """The stages of these names and all that they need, in their order."""
        if names is None:
            return self.stages
        known = [stage.name for stage in self.stages]
        odd = [name for name in names if name not in known]
        if odd or not names:
            raise StudyError(
                f"got the stage {odd[0]!r}, expected some of {', '.join(known)}"
                if odd
                else f"got no stage, expected some of {', '.join(known)}"
            )
        wanted = set(names)
        for stage in reversed(self.stages):
            if stage.name in wanted:
                wanted |= set(stage.needs)
        return [stage for stage in self.stages if stage.name in wanted]

    def _run(
        self,
        config: Config,
        folder: Path,
        progress: bool,
        say: Callable[[str], None],
        engine: Engine | None,
        chosen: Sequence[Stage],
        named: Sequence[str],
        num_helpers: int,
    ) -> None:
        if num_helpers and (engine is None or engine.name != "local"):
            raise StudyError(
                f"got {num_helpers} helpers and the engine {engine and engine.name!r}, expected "
                "'local', whose tasks alone can be shared"
            )
        wanted = self.fingerprints(config)
        chosen, others = to_look_at(chosen, named, wanted, folder)
        write_run(
            folder,
            study=self.name,
            title=self.title,
            text=self.text,
            stages=[
                {"name": stage.name, "title": stage.title, "fingerprint": wanted[stage.name]}
                for stage in self.stages
            ],
            config=config.model_dump(mode="json"),
            doing={
                "stages": [stage.name for stage in chosen],
                "engine": None if engine is None else engine.name,
            },
        )
        begun = (
            path
            for work in (folder / "work").glob("*")
            if not work.is_symlink()
            for path in work.glob(f"{BEGUN}*")
        )
        for left in (*(folder / "stages").glob(".*"), *begun):
            with contextlib.suppress(OSError):
                remove(left)
        apart = engine is not None and engine.name != "local"
        do_all = in_parallel if apart else one_by_one
        with helpers(num_helpers, self.name, folder, say):
            do_all(chosen, wanted, config, folder, progress, say, engine, others)
        if len(chosen) == len(self.stages):
            shutil.rmtree(folder / "work", ignore_errors=True)
        write_tables(folder)


def do(
    stage: Stage,
    fingerprint: str,
    read: Mapping[str, str],
    config: Any,
    folder: Path,
    progress: bool,
    engine: Engine | None,
) -> dict[str, Any]:
    """Does a stage in a folder beside, then puts that in its place; returns what it says of it."""
    start = time.perf_counter()
    # A name of its own: a worker that was given up may still be writing to another.
    place = folder / "stages" / f".{stage.name}-{secrets.token_hex(4)}"
    work = work_of(folder, stage.name, fingerprint)
    place.mkdir(parents=True)
    spent = _spent(work)
    step = Step(stage, config, folder, place, work, progress, engine)
    try:
        stage.work(step)
    except ArithmeticError as error:
        raise StudyError(f"stage {stage.name!r} stopped: {error}") from error
    finally:
        _spent(work, spent + time.perf_counter() - start)
    section = step.section.model_dump_json(exclude_defaults=False)
    (place / SECTION).write_text(section + "\n", encoding="utf-8")
    seconds = spent + time.perf_counter() - start
    content = {
        "stage": stage.name,
        "fingerprint": fingerprint,
        "read": dict(read),
        "seconds": round(seconds, 3),
        "times": [item.model_dump(mode="json") for item in step.times],
        "finished": now(),
        "versions": versions(),
        "machine": machine(),
        "files": {path.name: sha256_of(path) for path in sorted(place.iterdir())},
    }
    (place / STAGE).write_text(sealed(content), encoding="utf-8")
    content = put_in_place(folder, stage.name, place, content)
    shutil.rmtree(work, ignore_errors=True)
    return content


def _spent(work: Path, seconds: float | None = None) -> float:
    """Seconds that earlier tries took, so that a stage's time is the whole of it."""
    path = work / "seconds"
    if seconds is not None:
        with contextlib.suppress(FileNotFoundError):
            # Whatever has its name is not written to: it may be a link.
            remove(path)
            path.write_text(repr(seconds), encoding="utf-8")
        return seconds
    try:
        spent = float(read_bytes(path, largest=100))
    except (OSError, ValueError):
        return 0.0
    return spent if math.isfinite(spent) and spent >= 0 else 0.0


def _own(folder: Path) -> Path:
    """A folder of the run, once it is seen to be no link."""
    try:
        return check_own_folder(folder)
    except FileError as error:
        raise StudyError(f"{error}: remove it, and give the same command again") from error
