"""A bar over compiled chunks: how far, how fast, how long still, and how good."""

from __future__ import annotations

from typing import Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from onebasin.engine.progress import Rate


class Bar:
    """A bar for one phase; nothing is drawn where it is not enabled."""

    def __init__(self, name: str, total: int, done: int, *, enabled: bool):
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            Rate(),
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
