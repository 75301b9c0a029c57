"""One bar for all workers: done, running, failed, how fast, how long still."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from onebasin._core.imports import side_effects_undone

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, Task
    from rich.text import Text

SECONDS = 0.1


def rate() -> ProgressColumn:
    """A column with tasks per second, or seconds per task where they are slow."""
    from rich.progress import ProgressColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            if not speed:
                return Text("")
            return Text(f"{speed:,.3g}/s" if speed >= 1 else f"{1 / speed:,.3g} s each")

    return Rate()


class Bar:
    """A bar over tasks; nothing is drawn where it is not enabled.

    Args:
        name: What is being done.
        total: How many tasks there are, if that is known.
        done: How many were done before.
        enabled: Whether to draw it.
        console: Where to; standard error if left out.
    """

    def __init__(
        self,
        name: str,
        total: int | None,
        done: int,
        *,
        enabled: bool,
        console: Console | None = None,
    ):
        self._progress = _progress(console) if enabled else None
        if self._progress is not None:
            self._task = self._progress.add_task(
                name, total=total, completed=done, running=0, failed=0
            )
        self._drawn = 0.0

    def __enter__(self) -> Bar:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._progress is not None:
            self._progress.stop()

    def update(self, done: int, running: int, failed: int, total: int | None = None) -> None:
        """Moves the bar; thousands of tasks a second do not each draw it."""
        now = time.monotonic()
        if self._progress is None or (running and now - self._drawn < SECONDS):
            return
        self._drawn = now
        self._progress.update(
            self._task, completed=done, running=running, failed=failed, total=total
        )


def _progress(console: Console | None) -> Progress:
    # Drawn by few, and rich moves Python's random state as it is imported.
    with side_effects_undone():
        from rich.console import Console
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
        TextColumn("{task.fields[running]} running, {task.fields[failed]} failed"),
        rate(),
        TimeRemainingColumn(),
        console=console or Console(stderr=True),
    )
