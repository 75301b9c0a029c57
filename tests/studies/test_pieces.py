"""Pieces of a stage: done once each, and again only where something is wrong."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onebasin.engine import LocalEngine, TaskError
from onebasin.posterior import Gaussian
from onebasin.studies.pieces import each_piece

ITEMS = [np.arange(3.0), np.full(3, 5.0), np.zeros(3)]


def doubled(log: Path, item: np.ndarray) -> tuple[Gaussian, dict[str, Any]]:
    with log.open("a") as file:
        file.write(f"{item.tolist()}\n")
    return Gaussian({"w": 2 * item}, {"w": np.ones(3)}), {"sum": float(item.sum())}


def failing(log: Path, item: np.ndarray) -> tuple[Gaussian, dict[str, Any]]:
    if not item.any():
        raise ValueError("nothing there")
    return doubled(log, item)


@pytest.mark.parametrize("on_engine", [False, True])
def test_what_is_done_stays_done(tmp_path: Path, on_engine: bool) -> None:
    log, folder = tmp_path / "log", tmp_path / "pieces"
    engine = LocalEngine(tmp_path / "engine") if on_engine else None
    first = each_piece(doubled, log, ITEMS[:2], folder, engine, False)
    found = each_piece(doubled, log, ITEMS, folder, engine, False)
    assert log.read_text().splitlines() == [str(item.tolist()) for item in ITEMS]
    for (posterior, notes), item in zip(found, ITEMS, strict=True):
        np.testing.assert_array_equal(posterior.mean["w"], 2 * item)
        assert notes == {"sum": item.sum()}
    assert [notes for _, notes in first] == [notes for _, notes in found[:2]]


def test_what_has_changed_is_done_again(tmp_path: Path) -> None:
    log, folder = tmp_path / "log", tmp_path / "pieces"
    each_piece(doubled, log, ITEMS, folder, None, False)
    damaged = next(folder.glob("doubled-1-*"))
    raw = bytearray(damaged.read_bytes())
    raw[-1] ^= 1
    damaged.write_bytes(raw)
    other = [*ITEMS[:2], ITEMS[2] + 1]
    found = each_piece(doubled, log, other, folder, None, False)
    assert log.read_text().splitlines()[3:] == [str(item.tolist()) for item in other[1:]]
    assert [notes["sum"] for _, notes in found] == [3.0, 15.0, 3.0]
    means = [posterior.mean["w"].tolist() for posterior, _ in found]
    assert means == [(2 * item).tolist() for item in other]


def test_a_piece_that_fails_leaves_the_others_done(tmp_path: Path) -> None:
    log, folder = tmp_path / "log", tmp_path / "pieces"
    engine = LocalEngine(tmp_path / "engine", retries=0)
    with pytest.raises(TaskError, match="nothing there"):
        each_piece(failing, log, ITEMS[::-1], folder, engine, False)
    done = log.read_text()
    assert len(done.splitlines()) == 2
    with pytest.raises(TaskError, match="nothing there"):
        each_piece(failing, log, ITEMS[::-1], folder, engine, False)
    assert log.read_text() == done
