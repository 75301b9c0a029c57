"""Where tasks run: in this process, or on a Ray cluster."""

from onebasin.engine.claims import claim_on, claimed
from onebasin.engine.errors import EngineError, Superseded, TaskError
from onebasin.engine.interface import Engine, Queue, Shared
from onebasin.engine.local import LocalEngine
from onebasin.engine.opening import open_engine
from onebasin.engine.reports import watched
from onebasin.engine.running import run_tasks
from onebasin.engine.task import Receipt, Task

__all__ = [
    "Engine",
    "EngineError",
    "LocalEngine",
    "Queue",
    "Receipt",
    "Shared",
    "Superseded",
    "Task",
    "TaskError",
    "claim_on",
    "claimed",
    "open_engine",
    "run_tasks",
    "watched",
]
