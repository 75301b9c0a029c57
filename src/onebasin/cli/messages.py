"""How commands speak: sentences and progress on standard error, results on standard output."""

import contextlib
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from onebasin._core.text import readable
from onebasin._factory import FactoryError, one_line

BAD_INPUT = 2
OWN_FAULT = 1


def fail(sentence: str, code: int = BAD_INPUT) -> NoReturn:
    """End the command with one sentence, which may begin with a name that the user gave."""
    stop = "" if sentence.endswith((".", "?", "!")) else "."
    typer.echo(readable(f"onebasin: {sentence}{stop}"), err=True)
    raise typer.Exit(code)


def warn(sentence: str) -> None:
    """Say what the user should know, and go on."""
    typer.echo(readable(f"onebasin: warning: {sentence}"), err=True)


@contextlib.contextmanager
def working(doing: str, as_json: bool = False, spinner: bool = True) -> Iterator[None]:
    """Surround work with all that a command promises of it.

    A spinner turns; warnings come out as sentences; bad input, which the library refuses with
    `ValueError`, ends the command with code 2, and any other exception with code 1.

    Args:
        doing: what is being done, as "Reading the symmetries of my_models:factory".
        as_json: whether standard output is for one JSON object: prints go to standard error then.
        spinner: whether to show one, on a terminal.
    """
    console = Console(stderr=True)
    turning = console.status(doing) if spinner and console.is_terminal else contextlib.nullcontext()
    prints = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    try:
        with _plain_warnings(), turning, prints:
            yield
    except (typer.Exit, KeyboardInterrupt):
        raise
    except (FactoryError, ValueError) as error:
        fail(" ".join(str(error).split()) or one_line(error))
    except Exception as error:
        fail(
            f"{doing} stopped with {one_line(error)}; if apply_fn(params, inputs) runs by itself, "
            "this is a fault of onebasin: do the same in Python for the full traceback, and "
            "report it",
            code=OWN_FAULT,
        )


@contextlib.contextmanager
def bar(first: str) -> Iterator[Callable[[Iterable[Any], str, int], Iterable[Any]]]:
    """A progress bar on standard error, as `align_many` takes it: started anew for every round.

    Args:
        first: what is being done before the first round.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    shown = Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )

    def progress(items: Iterable[Any], description: str, total: int) -> Iterable[Any]:
        for task in shown.task_ids:
            shown.remove_task(task)
        return shown.track(items, total=total, description=description)

    with shown:
        shown.add_task(first, total=None)
        yield progress


def print_json(content: dict[str, Any]) -> None:
    """Print one JSON object; numbers that are not finite, which JSON has not, become null."""
    typer.echo(json.dumps(_plain(content), allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, str | int | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return _plain(np.asarray(value).tolist())


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show a warning as one sentence, without the line of code that gave it."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        warn(str(message))

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
