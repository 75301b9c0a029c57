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
from pathlib import Path
from typing import Any

from abuse import outcomes
from abuse.changes import changed
from abuse.readers import Reader, all_readers

ROOM = int(2.5 * 2**30)


def main(name: str, seed: str, folder: str, first: str, last: str, *more: str) -> None:
    """Prints `begin CASE` and `end RESULT` for each case."""
    warnings.simplefilter("ignore")
    reader = all_readers()[name]
    whole, place = Path(folder) / "whole", Path(folder) / "case"
    if not whole.exists():
        whole.mkdir()
        reader.make(whole)
    expected = _digest(reader, whole, place)
    _limit_memory()
    for case in range(int(first), int(last)):
        print(f"begin {case}", flush=True)
        result = _case(reader, whole, place, random.Random(f"{seed}/{name}/{case}"), expected)
        if more:
            print(result.pop("traceback", ""), file=sys.stderr)
        result.pop("traceback", None)
        print(f"end {json.dumps(result)}", flush=True)


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
        found = reader.read(place)
        if outcomes.digest(found) == expected:
            result["outcome"] = outcomes.SAME
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
    limit = _status("VmSize") + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main(*sys.argv[1:])
