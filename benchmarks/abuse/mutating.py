"""The worker of `mutations`: cases of one reader, each from a fresh copy of whole files."""

from __future__ import annotations

import json
import random
import resource
import shutil
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from abuse import outcomes
from abuse.changes import changed
from abuse.readers import Reader, all_readers

ROOM = int(2.5 * 2**30)


def main(name: str, seed: str, folder: str, first: str, last: str, *more: str) -> None:
    """Prints `begin CASE` and `end RESULT` for each case."""

    def begin(case: int) -> None:
        print(f"begin {case}", flush=True)

    for result in cases(name, seed, folder, range(int(first), int(last)), begin):
        if more:
            print(result["traceback"], file=sys.stderr)
        print(f"end {json.dumps({**result, 'traceback': ''})}", flush=True)


def cases(
    name: str,
    seed: str,
    folder: str,
    numbers: Iterable[int],
    begin: Callable[[int], None] = lambda case: None,
) -> Iterator[dict[str, Any]]:
    """How each case of a reader ended.

    Args:
        name: The reader.
        seed: Of all cases.
        folder: Where whole files, and those of a case, may lie.
        numbers: The cases.
        begin: Called with the number of each before it is read.
    """
    warnings.simplefilter("ignore")
    reader = all_readers()[name]
    whole, place = Path(folder) / "whole", Path(folder) / "case"
    if not whole.exists():
        whole.mkdir()
        reader.make(whole)
    expected = _digest(reader, whole, place)
    _limit_memory()
    for case in numbers:
        begin(case)
        chance = random.Random(f"{seed}/{name}/{case}")
        yield {"case": case, "traceback": "", **_case(reader, whole, place, chance, expected)}


def _digest(reader: Reader, whole: Path, place: Path) -> str:
    """What reading whole files gives: twice the same, or nothing here means anything."""
    found = set()
    for _ in range(2):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(whole, place)
        found.add(outcomes.digest(reader.read(place)))
    (only,) = found
    return only


def _case(
    reader: Reader, whole: Path, place: Path, chance: random.Random, expected: str
) -> dict[str, Any]:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(whole, place)
    path = chance.choice(reader.paths(place))
    file = str(path.relative_to(place))
    resealed = reader.reseal is not None and chance.random() < 0.25
    if resealed and reader.reseal is not None and reader.reseal(place, path, chance):
        what = "resealed"
    else:
        resealed = False
        content, what = changed(path.read_bytes(), path.name, chance)
        path.write_bytes(content)
    result = _read(reader, place, expected, resealed, reader.sealed(file))
    if result["outcome"] == outcomes.DAMAGED:
        result["detail"] = f"{file.rpartition('/')[2]} {what}"
    return result


def _read(
    reader: Reader, place: Path, expected: str, resealed: bool, sealed: bool
) -> dict[str, Any]:
    before, began = _reset_peak(), time.perf_counter()
    result: dict[str, Any] = {"detail": ""}
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = reader.read(place)
        if outcomes.digest(found) == expected:
            result["outcome"] = outcomes.SAME
        elif any(str(place) in str(warning.message) for warning in said):
            result["outcome"] = outcomes.TOLD
        elif resealed:
            result["outcome"] = outcomes.RESEALED
        else:
            result["outcome"] = outcomes.DAMAGED if sealed else outcomes.OTHER
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        ours = outcomes.is_ours(error)
        result["outcome"] = outcomes.OURS if ours else outcomes.RAW
        result["detail"] = "" if ours else outcomes.where(error)
        result["traceback"] = traceback.format_exc()
        if len(str(error)) > 3000:
            result |= {"outcome": outcomes.RAW, "detail": "a message of over 3,000 characters"}
    seconds, room = time.perf_counter() - began, _peak() - before
    if seconds > outcomes.SECONDS:
        result |= {"outcome": outcomes.SLOW, "detail": f"{seconds:.0f} s"}
    if room > outcomes.BYTES:
        result |= {"outcome": outcomes.BIG, "detail": f"{room / 2**30:.1f} GiB"}
    return result


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0


def _reset_peak() -> int:
    """Forgets the largest memory so far, where the system lets us; what is in use."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return _status("VmHWM")
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _limit_memory() -> None:
    """A read that asks for more ends in a MemoryError instead of ending the machine."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + ROOM, hard))


if __name__ == "__main__":
    main(*sys.argv[1:])
