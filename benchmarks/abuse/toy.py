"""A study of two stages that takes no time, with draws, a table, and a table of seconds."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import onebasin as ob
from onebasin.studies import Cell, Column, Row, Step, Study, StudyConfig, Table


class ToyConfig(StudyConfig):
    """What the toy is told."""

    first: int = 1
    second: int = 2


toy = Study("toy", "A toy", "Whether stages run.", ToyConfig)


def _table(name: str, value: float) -> Table:
    column = Column(key="total", label="total")
    return Table(
        name=name,
        title="T",
        columns=[column],
        rows=[Row(label="r", cells={"total": Cell(value=value)})],
    )


@toy.stage("One", reads=("first",))
def one(step: Step) -> None:
    """Draws, and a note."""
    step.save("draws", ob.Draws({"w": jnp.full((3, 2), float(step.config.first))}))
    step.save_notes("how", by="hand")
    step.show(_table("first", 1.0))


@toy.stage("Two", needs=("one",), reads=("second",))
def two(step: Step) -> None:
    """A sum over the draws."""
    draws = step.load("one", "draws", like={"w": jnp.zeros(2)})
    total = float(draws.params["w"].sum()) + step.config.second
    step.save_arrays("total", total=np.array(total))
    step.show(_table("sums", total))
    step.show_times(_table("seconds", 0.5))
    step.headline("total", f"{total:g}")
