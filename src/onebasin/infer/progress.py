"""A bar over compiled chunks: how far, how fast, how long still, and how good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onebasin._core.imports import side_effects_undone
from onebasin.engine.progress import rate

if TYPE_CHECKING:
    from rich.progress import Progress


class Bar:
    """A bar for one phase; nothing is drawn where it is not enabled."""

    def __init__(self, name: str, total: int, done: int, *, enabled: bool):
        self._progress = _progress() if enabled else None
        if self._progress is not None:
            self._task = self._progress.add_task(name, total=total, completed=done, shown="")

    def __enter__(self) -> Bar:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._progress is not None:
            self._progress.stop()

    def update(self, done: int, values: dict[str, float]) -> None:
        """Moves the bar to `done` steps, with the latest values beside it."""
        if self._progress is not None:
            shown = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
            self._progress.update(self._task, completed=done, shown=shown)


def _progress() -> Progress:
    with side_effects_undone():
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        rate(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[shown]}"),
    )
