"""The order of stages: one after the other here, or side by side on workers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onebasin.engine import Engine, Receipt, Shared, Task, TaskError, watched
from onebasin.studies.folder import digest, finished

if TYPE_CHECKING:
    from onebasin.studies.pipeline import Stage

Say = Callable[[str], None]
AT_A_TIME = 2


def one_by_one(
    stages: Sequence[Stage],
    wanted: Mapping[str, str],
    config: Any,
    folder: Path,
    progress: bool,
    say: Say,
    engine: Engine | None,
) -> None:
    """Does the stages that are not done, in their order, in this process."""
    from onebasin.studies.pipeline import do

    contents: dict[str, str] = {}
    for number, stage in enumerate(stages, 1):
        place = f"[{number}/{len(stages)}] {stage.name}"
        read = {name: contents[name] for name in stage.needs}
        done = _done(folder, stage, wanted, read)
        if done is not None:
            say(f"{place}: done before in {done['seconds']:.1f} s, kept")
        else:
            say(f"{place}: {stage.title}")
            done = do(stage, wanted[stage.name], read, config, folder, progress, engine)
            say(f"{place}: {done['seconds']:.1f} s")
        contents[stage.name] = digest(done["files"])


def in_parallel(
    stages: Sequence[Stage],
    wanted: Mapping[str, str],
    config: Any,
    folder: Path,
    progress: bool,
    say: Say,
    engine: Engine | None,
) -> None:
    """Does each stage on a worker as soon as those that it needs are done.

    Stages spend their time waiting for their own tasks: two at a time keep the workers busy.
    """
    assert engine is not None
    shared = engine.share((tuple(stages), config, str(folder.resolve()), engine))
    places = {s.name: f"[{n}/{len(stages)}] {s.name}" for n, s in enumerate(stages, 1)}
    contents: dict[str, str] = {}
    failures: list[Receipt] = []
    waiting = list(stages)
    running = 0
    with (
        contextlib.closing(engine.queue()) as queue,
        watched(engine.directory, "tasks of all workers", enabled=progress),
    ):

        def submit() -> None:
            nonlocal running
            for stage in list(waiting):
                if not set(stage.needs) <= contents.keys() or running >= AT_A_TIME:
                    continue
                waiting.remove(stage)
                read = {name: contents[name] for name in stage.needs}
                done = _done(folder, stage, wanted, read)
                if done is not None:
                    say(f"{places[stage.name]}: done before in {done['seconds']:.1f} s, kept")
                    contents[stage.name] = digest(done["files"])
                    submit()
                    return
                say(f"{places[stage.name]}: {stage.title}")
                arguments = (shared, stage.name, wanted[stage.name], read)
                queue.submit(Task(f"stage/{stage.name}", do_on_worker, arguments, waits=True))
                running += 1

        submit()
        for receipt in queue.completed():
            running -= 1
            name = receipt.key.removeprefix("stage/")
            if receipt.error is None:
                say(f"{places[name]}: {receipt.value['seconds']:.1f} s on {receipt.worker}")
                contents[name] = receipt.value["digest"]
            else:
                failures.append(receipt)
            submit()
    if failures:
        raise TaskError(failures, len(contents))


def do_on_worker(
    shared: Shared[Any], name: str, fingerprint: str, read: dict[str, str]
) -> dict[str, Any]:
    """One stage, on a worker."""
    from onebasin.studies.pipeline import do

    stages, config, folder, engine = shared.get()
    stage = next(s for s in stages if s.name == name)
    done = _done(Path(folder), stage, {name: fingerprint}, read)
    if done is None:
        done = do(stage, fingerprint, read, config, Path(folder), False, engine)
    return {"seconds": done["seconds"], "digest": digest(done["files"])}


def _done(
    folder: Path, stage: Stage, wanted: Mapping[str, str], read: Mapping[str, str]
) -> dict[str, Any] | None:
    """What a finished stage says of itself, if it was made from the same."""
    done = finished(folder, stage.name)
    same = done is not None and done["fingerprint"] == wanted[stage.name]
    return done if done is not None and same and done.get("read") == read else None
