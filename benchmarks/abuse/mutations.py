"""Damaged files through every reader, counted by how the reading ended."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from typing import Any

from abuse.outcomes import BAD, GOOD
from abuse.table import show
from abuse.watching import watched

BATCH = 400


def run(given: argparse.Namespace) -> int:
    """All cases; prints a table, and each kind of failure with cases that show it."""
    weights = _weights(given.readers)
    if given.case is not None:
        return _once(next(iter(weights)), given)
    total = sum(weights.values())
    rows: dict[str, dict[str, int]] = {}
    failures: dict[str, list[Any]] = {}
    began = time.time()
    for name, weight in weights.items():
        count = max(1, round(given.count * weight / total))
        read = _unwatched if given.one_process else _reader
        results = list(read(name, count, given.seed))
        rows[name] = dict(Counter(result["outcome"] for result in results))
        for result in results:
            if result["outcome"] in BAD:
                kind, _, example = result["detail"].partition(": ")
                said = f"{name}: {result['outcome']}: {kind}"
                failures.setdefault(said, []).append((result["case"], example))
        print(f"  {name}: {rows[name]} after {time.time() - began:.0f} s", flush=True)
    print(show(rows, (*GOOD, *BAD), "reader"))
    for said, cases in sorted(failures.items(), key=lambda item: -len(item[1])):
        numbers = ", ".join(str(case) for case, _ in cases[:4])
        print(f"{len(cases):>5} x {said}: {cases[0][1]} (cases {numbers})")
    if given.out is not None:
        content = {"seed": given.seed, "readers": rows, "failures": failures}
        given.out.write_text(json.dumps(content, indent=1) + "\n")
    print(f"{sum(map(len, failures.values()))} failures in {time.time() - began:.0f} s")
    return int(bool(failures))


def _weights(wanted: list[str] | None) -> dict[str, float]:
    """The readers that are asked for; looked up in a process of their own, as they import much."""
    script = (
        "import json; from abuse.readers import all_readers; "
        "print(json.dumps({r.name: r.weight for r in all_readers().values()}))"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(told.stdout.splitlines()[-1])
    kept = {n: w for n, w in found.items() if wanted is None or any(part in n for part in wanted)}
    if not kept:
        raise SystemExit(f"no reader is called so; there are {', '.join(found)}")
    return kept


def _reader(name: str, count: int, seed: int) -> Any:
    with tempfile.TemporaryDirectory(prefix="abuse-") as folder:
        command = ["-m", "abuse.mutating", name, str(seed), folder]
        for first in range(0, count, BATCH):
            yield from watched(command, first, min(count, first + BATCH))


def _unwatched(name: str, count: int, seed: int) -> Any:
    """The same in this process: quicker for few cases, and ended by the first that ends it."""
    from abuse.mutating import cases

    with tempfile.TemporaryDirectory(prefix="abuse-") as folder:
        yield from cases(name, str(seed), folder, range(count))


def _once(name: str, given: argparse.Namespace) -> int:
    """One case, with all that it prints."""
    with tempfile.TemporaryDirectory(prefix="abuse-") as folder:
        case = [str(given.case), str(given.case + 1)]
        command = [
            sys.executable,
            "-m",
            "abuse.mutating",
            name,
            str(given.seed),
            folder,
            *case,
            "-v",
        ]
        return subprocess.run(command, check=False).returncode
