"""Work in folders that a stranger made: nothing outside of them is touched or copied in."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter

from abuse import outcomes
from abuse.table import show
from abuse.watching import watched

TOUCHED, LEAKED, HELD = "TOUCHED", "COPIED IN", "held"


def run(given: argparse.Namespace) -> int:
    """Every operation on every folder; prints a table by kind, and what did not hold."""
    from abuse.strangers import CASES

    names = [f"{kind}: {name}" for kind, name in CASES]
    wanted = [
        n for n, name in enumerate(names) if not given.only or any(o in name for o in given.only)
    ]
    rows: dict[str, Counter[str]] = {}
    failures: list[str] = []
    began = time.time()
    with tempfile.TemporaryDirectory(prefix="abuse-") as folder:
        command = ["-m", "abuse.strangers", folder, json.dumps(wanted)]
        for result in watched(command, 0, len(wanted), 150.0):
            number = wanted[result["case"]]
            rows.setdefault(CASES[number][0], Counter())[result["outcome"]] += 1
            if result["outcome"] != HELD:
                failures.append(f"{names[number]}: {result['detail']}")
    columns = (HELD, TOUCHED, LEAKED, outcomes.RAW, outcomes.SLOW, outcomes.CRASH)
    print(show({kind: dict(row) for kind, row in rows.items()}, columns, "folders"))
    print(*failures, sep="\n")
    if given.out is not None:
        given.out.write_text(json.dumps({"folders": rows, "failures": failures}, indent=1) + "\n")
    print(f"{len(failures)} of {len(wanted)} did not hold, {time.time() - began:.0f} s")
    return int(bool(failures))
