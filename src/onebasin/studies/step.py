"""What a stage of a study is given, and what it shows and keeps."""

from __future__ import annotations

import dataclasses
import json
import shutil
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from safetensors.numpy import load_file, save_file

from onebasin import store
from onebasin._core.files import check_own_folder, read_json
from onebasin.engine import Engine
from onebasin.studies.errors import StudyError
from onebasin.studies.pieces import Kind, Posterior, Work, each_piece
from onebasin.studies.results import Figure, Headline, Section, Table

if TYPE_CHECKING:
    from onebasin.studies.pipeline import Stage

BEGUN = ".begun-"


class Step:
    """What a stage is given: its part of the study, and where its results go."""

    def __init__(
        self,
        stage: Stage,
        config: Any,
        folder: Path,
        place: Path,
        work: Path,
        progress: bool,
        engine: Engine | None = None,
    ) -> None:
        self.config = config
        self.progress = progress
        self.engine = engine
        self.work = work
        self._stage = stage
        self._folder = folder
        self._place = place
        self._items: list[Table | Figure] = []
        self._times: list[Table | Figure] = []
        self._headlines: list[Headline] = []
        self._text = ""

    @property
    def key(self) -> jax.Array:
        """A random key of this stage's own, which no other stage's work changes."""
        return jax.random.fold_in(
            jax.random.key(self.config.seed), zlib.crc32(self._stage.name.encode())
        )

    def in_turn(self, names: Iterable[str]) -> Iterator[str]:
        """Several pieces of work of the stage, one after the other; what is begun is marked so."""
        left = list(names)
        while left:
            name = self._next_of(left)
            left.remove(name)
            yield name

    def _next_of(self, names: Sequence[str]) -> str:
        (self.work / f"{BEGUN}{names[0]}").mkdir(parents=True, exist_ok=True)
        return names[0]

    def end_tasks(self) -> None:
        """Says that no tasks follow: a helper stops here, before what only the run should do."""

    def each(self, work: Work[Kind], items: Sequence[Any]) -> list[tuple[Kind, dict[str, Any]]]:
        """Does the same for each of some items: tasks, which helpers share and a kill leaves.

        Args:
            work: work(config, item), a function of a module: a posterior, and what JSON can hold.
            items: What it is done to.
        """
        pieces = check_own_folder(self.work / "pieces")
        return each_piece(work, self.config, items, pieces, self.engine, self.progress)

    def save(self, name: str, posterior: Posterior) -> None:
        """Keeps a posterior; how long it took is the stage's to say, and no part of it."""
        self._room(sum(x.nbytes for x in jax.tree.leaves(posterior)))
        if posterior.info and "seconds" in posterior.info:
            info = {k: v for k, v in posterior.info.items() if k != "seconds"}
            posterior = dataclasses.replace(posterior, info=info)
        store.save(self._place / f"{name}.safetensors", posterior)

    def save_arrays(self, name: str, **arrays: Any) -> None:
        """Keeps arrays."""
        plain = {key: np.ascontiguousarray(value) for key, value in arrays.items()}
        self._room(sum(x.nbytes for x in plain.values()))
        save_file(plain, self._place / f"{name}.arrays.safetensors")

    def save_notes(self, name: str, **notes: Any) -> None:
        """Keeps what JSON can hold."""
        (self._place / f"{name}.json").write_text(json.dumps(notes), encoding="utf-8")

    def load_notes(self, stage: str, name: str) -> dict[str, Any]:
        """Notes of this or an earlier stage."""
        found: dict[str, Any] = read_json(self._of(stage) / f"{name}.json")
        return found

    def load(self, stage: str, name: str, like: Any = None) -> Any:
        """A posterior of this or an earlier stage."""
        return store.load(self._of(stage) / f"{name}.safetensors", like=like)

    def load_arrays(self, stage: str, name: str) -> dict[str, np.ndarray]:
        """Arrays of this or an earlier stage."""
        return load_file(self._of(stage) / f"{name}.arrays.safetensors")

    def show(self, *items: Table | Figure) -> None:
        """Adds tables and figures to what this stage found."""
        self._items += items

    def show_times(self, *items: Table | Figure) -> None:
        """Adds tables and figures of seconds.

        No two runs share them: they are kept apart from what was found, which all runs share.
        """
        self._times += items

    def headline(self, label: str, value: str, text: str = "") -> None:
        """Adds a number that matters to the top of the report."""
        self._headlines.append(Headline(label=label, value=value, text=text))

    def say(self, text: str) -> None:
        """Sets what the report says above this stage's results."""
        self._text = text

    @property
    def section(self) -> Section:
        """All that was shown so far."""
        return Section(
            title=self._stage.title, text=self._text, items=self._items, headlines=self._headlines
        )

    @property
    def times(self) -> list[Table | Figure]:
        """What was shown of seconds."""
        return self._times

    def _of(self, stage: str) -> Path:
        if stage != self._stage.name and stage not in self._stage.needs:
            raise ValueError(f"stage {self._stage.name!r} reads {stage!r} without needing it")
        return self._place if stage == self._stage.name else self._folder / "stages" / stage

    def _room(self, wanted: int) -> None:
        free = shutil.disk_usage(self._place).free
        if wanted > free:
            raise StudyError(
                f"stage {self._stage.name!r} needs {wanted:,} bytes in {self._folder}, and "
                f"{free:,} are free: make room and give the same command again; every finished "
                "stage is kept"
            )
