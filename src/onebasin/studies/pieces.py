"""Pieces of a stage that are alike, as tasks: helpers share them, and a killed run keeps them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from onebasin._core.files import parse_json
from onebasin.engine import Engine, Shared, Task, claim_on, run_tasks
from onebasin.posterior import Draws, Gaussian, Mixture
from onebasin.store.fingerprint import fingerprint
from onebasin.store.manifest import made_with
from onebasin.store.sealed import Seals, is_sealed, seal_posterior

Posterior = Draws | Gaussian | Mixture
Kind = TypeVar("Kind", Draws, Gaussian, Mixture)
Work = Callable[[Any, Any], tuple[Kind, dict[str, Any]]]
NOTES = "notes"


@dataclasses.dataclass(frozen=True)
class Piece:
    """One of them: what it is done to, and where what is found goes."""

    file: str
    question: str
    item: Any


def each_piece(
    work: Work[Kind],
    config: Any,
    items: Sequence[Any],
    folder: Path,
    engine: Engine | None,
    progress: bool,
) -> list[tuple[Kind, dict[str, Any]]]:
    """What a piece of work finds for each of some items.

    Args:
        work: work(config, item), a function of a module: a posterior, and what JSON can hold.
        config: What all are done with.
        items: What they are done to; their arrays may be large.
        folder: Where what is found is kept; another one for another `config`.
        engine: Where they run as tasks; None for here, one after the other.
        progress: Show a bar.
    """
    name = work.__name__.strip("_")
    common = fingerprint(work, made_with())
    pieces = []
    for number, item in enumerate(items):
        question = fingerprint(common, item)
        file = folder.resolve() / f"{name}-{number}-{question[:16]}.safetensors"
        pieces.append(Piece(str(file), question, item))
    seals = Seals()
    left = [piece for piece in pieces if not seals.is_sealed(Path(piece.file), piece.question)]
    if engine is None:
        for piece in left:
            _do(work, config, piece)
    else:
        shared = engine.share((work, config))
        tasks = (
            Task(
                Path(piece.file).stem, do_piece, (shared, engine.share(piece)), claim_on(piece.file)
            )
            for piece in left
        )
        kept = len(pieces) - len(left)
        for _ in run_tasks(
            engine, tasks, title=name, total=len(pieces), kept=kept, progress=progress
        ):
            pass
    return [_read(piece, seals) for piece in pieces]


def do_piece(shared: Shared[Any], own: Shared[Piece]) -> dict[str, Any]:
    """Does one of them, unless its file is there."""
    piece = own.get()
    if is_sealed(Path(piece.file), piece.question):
        return {"kept": True}
    work, config = shared.get()
    _do(work, config, piece)
    return {"kept": False}


def _do(work: Work[Any], config: Any, piece: Piece) -> None:
    found, notes = work(config, piece.item)
    seal_posterior(Path(piece.file), piece.question, found, **{NOTES: json.dumps(notes)})


def _read(piece: Piece, seals: Seals) -> tuple[Any, dict[str, Any]]:
    found, notes = seals.unseal_posterior(Path(piece.file), piece.question)
    return found, parse_json(notes[NOTES])
