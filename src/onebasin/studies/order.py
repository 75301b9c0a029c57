"""The order of stages: one after the other here, or side by side on workers."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onebasin.engine import Engine, Receipt, Shared, Task, TaskError, watched
from onebasin.studies.folder import digest, finished, kept

if TYPE_CHECKING:
    from onebasin.studies.pipeline import Stage

Say = Callable[[str], None]
AT_A_TIME = 2


def to_look_at(
    stages: Sequence[Stage], named: Sequence[str], wanted: Mapping[str, str], folder: Path
) -> tuple[list[Stage], dict[str, str]]:
    """The stages that were named and those whose files are read, and hashes of the others' files.

    What only finished stages have read is not read again: its files may lie on another machine.
    """
    if {stage.name for stage in stages} <= set(named):
        return list(stages), {}
    said: dict[str, str] = {}
    for stage in stages:
        content = kept(folder, stage.name)
        read = {name: said.get(name) for name in stage.needs}
        if content is not None and _same(content, wanted[stage.name], read):
            said[stage.name] = digest(content["files"])
    whole = functools.cache(lambda name: name in said and finished(folder, name) is not None)
    looked: set[str] = set()
    wider = set(named)
    while wider != looked:
        looked, redone = wider, set[str]()
        for stage in stages:
            # Redone with another result, a stage makes those that read it be done again too.
            if stage.name in looked and (not whole(stage.name) or redone & set(stage.needs)):
                redone.add(stage.name)
        wider = looked.union(*(stage.needs for stage in stages if stage.name in redone))
    others = {name: files for name, files in said.items() if name not in looked}
    return [stage for stage in stages if stage.name in looked], others


def one_by_one(
    stages: Sequence[Stage],
    wanted: Mapping[str, str],
    config: Any,
    folder: Path,
    progress: bool,
    say: Say,
    engine: Engine | None,
    others: Mapping[str, str],
) -> None:
    """Does the stages that are not done, in their order, in this process."""
    from onebasin.studies.pipeline import do

    contents: dict[str, str] = dict(others)
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
    others: Mapping[str, str],
) -> None:
    """Does each stage on a worker as soon as those that it needs are done.

    Stages spend their time waiting for their own tasks: two at a time keep the workers busy.
    """
    assert engine is not None
    shared = engine.share((tuple(stages), config, str(folder.resolve()), engine))
    places = {s.name: f"[{n}/{len(stages)}] {s.name}" for n, s in enumerate(stages, 1)}
    contents: dict[str, str] = dict(others)
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
        raise TaskError(failures, len(contents) - len(others))


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
    return done if done is not None and _same(done, wanted[stage.name], read) else None


def _same(content: Mapping[str, Any], fingerprint: str, read: Mapping[str, Any]) -> bool:
    """Whether a stage was made from the same."""
    return bool(content.get("fingerprint") == fingerprint and content.get("read") == read)
