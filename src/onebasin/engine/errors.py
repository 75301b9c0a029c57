"""What goes wrong with engines and tasks, each as one sentence for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onebasin.engine.task import Receipt

SHOWN = 3


class EngineError(ValueError):
    """An engine could not be opened, or cannot go on; the message says what to do."""


class Superseded(Exception):
    """What tasks were for has been done by others."""


class TaskError(EngineError):
    """Tasks failed after all tries, and all others were done.

    Attributes:
        failures: What is known of the failed ones: key, error, and the log's place.
        done: How many others were done.
    """

    def __init__(self, failures: Sequence[Receipt], done: int):
        self.failures = tuple(failures)
        self.done = done
        said = "; ".join(
            f"{f.key!r} after {f.attempts} tries with {f.error} (log: {f.log or 'none'})"
            for f in self.failures[:SHOWN]
        )
        more = len(self.failures) - SHOWN
        also = f"; and {more:,} more" if more > 0 else ""
        count = f"{len(self.failures):,} task{'s' * (len(self.failures) != 1)}"
        super().__init__(
            f"{count} failed: {said}{also}; the {done:,} others are done and kept: "
            "mend the cause and give the same command again"
        )

    def __reduce__(self) -> Any:
        """Made again of what it was made of, as errors cross processes."""
        return type(self), (self.failures, self.done)
