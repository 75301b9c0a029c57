"""A worker that does one case after the other, and is ended where it takes too long.

The worker prints `begin CASE` and `end {...}`; what it was at when it hung or died is known so.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

from abuse.outcomes import CRASH, SECONDS, SLOW

START = 180.0


def watched(
    command: list[str], first: int, last: int, seconds: float = SECONDS + 5
) -> Iterator[dict[str, Any]]:
    """What became of the cases from `first` to `last`, each by a worker that is still alive.

    Args:
        command: Arguments of Python; the first and last case are added.
        first: The first case.
        last: The case after the last.
        seconds: How long a case may take.
    """
    while first < last:
        for result in _one(command, first, last, seconds):
            yield result
            first = result["case"] + 1


def _one(command: list[str], first: int, last: int, seconds: float) -> Iterator[dict[str, Any]]:
    """The cases up to the first that ends its worker, which is one of the results."""
    process = subprocess.Popen(
        [sys.executable, *command, str(first), str(last)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    lines: queue.Queue[str] = queue.Queue()
    assert process.stdout is not None
    reader = threading.Thread(target=_fill, args=(process.stdout, lines), daemon=True)
    reader.start()
    errors: list[str] = []
    assert process.stderr is not None
    drain = threading.Thread(target=errors.extend, args=(process.stderr,), daemon=True)
    drain.start()
    case, limit = None, START
    try:
        while True:
            try:
                line = lines.get(timeout=limit)
            except queue.Empty:
                yield {"case": first if case is None else case, "outcome": SLOW, "detail": "no end"}
                return
            word, _, rest = line.partition(" ")
            if word == "begin":
                case, limit = int(rest), seconds
            elif word == "end":
                yield {"case": case, **json.loads(rest)}
                case, limit = None, START
            elif word == "EOF":
                process.wait()
                drain.join(5)
                if case is not None:
                    yield {
                        "case": case,
                        "outcome": CRASH,
                        "detail": f"ended with {process.returncode}",
                    }
                elif process.returncode:
                    raise RuntimeError("".join(errors)[-2000:])
                return
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _fill(stream: Any, lines: queue.Queue[str]) -> None:
    for line in stream:
        if line.startswith(("begin ", "end ")):
            lines.put(line.rstrip("\n"))
    lines.put("EOF")
