"""The worker of `hostile`: one folder after the other, and all that can be done with it."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

from abuse import canary, constructions, outcomes

CASES = [
    (kind, name)
    for kind, made in (
        ("run", constructions.RUNS),
        ("study", constructions.STUDIES),
        ("kept", constructions.KEPT),
    )
    for name in made
]
SECONDS = 6


class Hangs(BaseException):
    """An operation waits for something that does not come."""


def main(folder: str, wanted: str, first: str, last: str) -> None:
    """Prints `begin CASE` and `end RESULT` for each folder, by its place among those wanted."""
    numbers = json.loads(wanted)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _hang)
    whole = Path(folder) / "whole"
    if not whole.exists():
        _make(whole)
    for case in range(int(first), int(last)):
        print(f"begin {case}", flush=True)
        print(f"end {json.dumps(_case(Path(folder), whole, *CASES[numbers[case]]))}", flush=True)


def _hang(*_: Any) -> None:
    raise Hangs


def _make(whole: Path) -> None:
    from abuse.readers.runs import make_run
    from abuse.toy import ToyConfig, toy
    from onebasin import studies

    whole.mkdir()
    make_run(whole)
    toy.run(ToyConfig(), whole / "study")
    studies.copy_results(whole / "study", whole / "kept")


def _case(folder: Path, whole: Path, kind: str, name: str) -> dict[str, Any]:
    """A fresh sandbox with one hostile folder; every operation, and what it did to the rest."""
    place = folder / "case"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    canary.plant(place / "outside", whole / "run")
    shutil.copytree(whole / ("run" if kind == "run" else "study"), place / "given")
    kinds = {"run": constructions.RUNS, "study": constructions.STUDIES, "kept": constructions.KEPT}
    if kind == "kept":
        shutil.copytree(whole / "kept", place / "kept")
    kinds[kind][name](place / ("kept" if kind == "kept" else "given"), place / "outside")
    before = canary.snapshot(place / "outside")
    around = _names(folder, place)
    found = []
    for said, operation in _operations(kind).items():
        wrong = _tried(operation, place / "given")
        harm = _harm(place, before, _names(folder, place) - around)
        found += [{**x, "detail": f"{said}: {x['detail']}"} for x in (harm, wrong) if x]
        if harm:
            break
    # What was done to others weighs most.
    order = ("TOUCHED", "COPIED IN", outcomes.SLOW, outcomes.RAW)
    found.sort(key=lambda result: order.index(result["outcome"]))
    return found[0] if found else {"outcome": "held", "detail": ""}


def _operations(kind: str) -> dict[str, Any]:
    from abuse import operations

    found: dict[str, Any] = getattr(
        operations, {"run": "RUNS", "study": "STUDIES"}.get(kind, "KEPT")
    )
    return found


def _names(*folders: Path) -> set[str]:
    return {path.name for folder in folders for path in folder.iterdir()}


def _harm(place: Path, before: dict[str, Any], made: set[str]) -> dict[str, str]:
    """What was done outside of a folder; nothing, if nothing."""
    touched = canary.differences(before, canary.snapshot(place / "outside"))
    if touched:
        return {"outcome": "TOUCHED", "detail": f"{touched} outside"}
    if made - {"kept", "kept2", "page.html", "page2.html"}:
        return {"outcome": "TOUCHED", "detail": f"made {sorted(made)}"}
    for inside in ("given", "kept", "kept2"):
        if leak := canary.leaked(place / inside):
            return {"outcome": "COPIED IN", "detail": f"copied {leak} into {inside}"}
    return {}


def _tried(operation: Any, folder: Path) -> dict[str, str]:
    """What was wrong with how an operation ended; nothing, if with a result or an error of ours."""
    try:
        signal.alarm(SECONDS)
        operation(folder)
    except Hangs as error:
        return {"outcome": outcomes.SLOW, "detail": outcomes.where(error)}
    except Exception as error:
        if not outcomes.is_ours(error):
            return {"outcome": outcomes.RAW, "detail": outcomes.where(error)}
    finally:
        signal.alarm(0)
    return {}


if __name__ == "__main__":
    main(*sys.argv[1:])
