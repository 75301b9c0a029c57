"""A bar over compiled chunks: how far, how fast, how long still, and how good."""

from __future__ import annotations

from typing import Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class _Rate(ProgressColumn):
    """Steps per second, or seconds per step where they are slow."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        if not speed:
            return Text("")
        return Text(f"{speed:,.3g}/s" if speed >= 1 else f"{1 / speed:,.3g} s each")


class Bar:
    """A bar for one phase; nothing is drawn where it is not enabled."""

    def __init__(self, name: str, total: int, done: int, *, enabled: bool):
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            _Rate(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[shown]}"),
            disable=not enabled,
        )
        self._task = self._progress.add_task(name, total=total, completed=done, shown="")

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._progress.stop()

    def update(self, done: int, values: dict[str, float]) -> None:
        """Moves the bar to `done` steps, with the latest values beside it."""
        shown = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
        self._progress.update(self._task, completed=done, shown=shown)
