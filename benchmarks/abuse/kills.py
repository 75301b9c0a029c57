"""Processes that are killed at random moments, or whose power is cut, and go on.

At the end of each folder its result is that of one that nobody disturbed, bit for bit; and no kill
takes away what was finished before it.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from abuse.power import CUTS, finished
from abuse.table import show

KINDS = ("hmc", "sghmc", "ensemble", "mean_field", "study")
SAME, LOST, OTHER, ERROR = "same end", "LOST", "OTHER END", "ERROR"
MOST_SECONDS = 600


def run(given: argparse.Namespace) -> int:
    """Kills and power cuts, shared by the kinds of work; prints how often each ended well."""
    kinds = given.kinds or list(KINDS)
    rows: dict[str, dict[str, int]] = {}
    failures: list[str] = []
    for number, kind in enumerate(kinds):
        share = [
            total // len(kinds) + (number < total % len(kinds))
            for total in (given.count, given.power_cuts)
        ]
        with tempfile.TemporaryDirectory(prefix="abuse-") as folder:
            work = _Work(kind, Path(folder), random.Random(f"{given.seed}/{kind}"))
            work.disturb(*share)
        rows[kind] = dict(work.counts)
        failures += work.failures
        print(f"  {kind}: {rows[kind]}", flush=True)
    columns = ("kills", "power cuts", "folders", SAME, LOST, OTHER, ERROR)
    print(show(rows, columns, "work"))
    print(*failures, sep="\n")
    if given.out is not None:
        given.out.write_text(json.dumps({"work": rows, "failures": failures}, indent=1) + "\n")
    return int(bool(failures))


class _Work:
    """One kind of work, disturbed over and over, in one folder after the other."""

    def __init__(self, kind: str, root: Path, chance: random.Random) -> None:
        self._kind, self._root, self._chance = kind, root, chance
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        _, self._expected, said = self._go(root / "undisturbed", disturbed=False)
        if not self._expected:
            raise RuntimeError(f"{kind} does not end when nobody disturbs it: {said}")

    def disturb(self, kills: int, cuts: int) -> None:
        """As many kills as are asked for, of which as many as are asked for cut the power too."""
        # A cut is a kill, after which the disk is as it may be then.
        left = ["cut"] * cuts + ["kill"] * kills
        self._chance.shuffle(left)
        while left:
            folder = self._root / f"{self.counts['folders']}"
            self.counts["folders"] += 1
            left = self._one(folder, left)
            shutil.rmtree(folder, ignore_errors=True)

    def _one(self, folder: Path, left: list[str]) -> list[str]:
        """A folder that is disturbed until its work is done, or until nobody has anything left."""
        done = 0
        while left:
            killed, ended, said = self._go(folder, disturbed=True)
            if not killed:
                self._judge(ended, said)
                return left
            disturbance = left.pop()
            self.counts["kills" if disturbance == "kill" else "power cuts"] += 1
            if disturbance == "cut":
                what = self._chance.choice(sorted(CUTS))
                CUTS[what](folder, self._chance)
            now = finished(folder)
            if now < done:
                self.counts[LOST] += 1
                self.failures.append(f"{self._kind}: {done - now} of {done} finished parts lost")
            done = now
        _, ended, said = self._go(folder, disturbed=False)
        self._judge(ended, said)
        return left

    def _judge(self, ended: str, said: str) -> None:
        outcome = SAME if ended == self._expected else OTHER if ended else ERROR
        self.counts[outcome] += 1
        if outcome != SAME:
            self.failures.append(f"{self._kind}: {outcome}: {said[-400:]}")

    def _go(self, folder: Path, *, disturbed: bool) -> tuple[bool, str, str]:
        """Works in a folder, killed or not; whether it was, its digest, its errors."""
        command = [sys.executable, "-m", "abuse.working", self._kind, str(folder)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            if disturbed:
                self._await(process, folder)
                process.send_signal(signal.SIGKILL)
            out, error = process.communicate(timeout=MOST_SECONDS)
        killed = process.returncode == -signal.SIGKILL
        lines = [line for line in out.splitlines() if line.startswith("done ")]
        return killed and not lines, lines[0].partition(" ")[2] if lines else "", error

    def _await(self, process: subprocess.Popen[str], folder: Path) -> None:
        """A random moment: most often when files are being written, as then there is most to lose.

        Compiling takes longer than the work, and a kill then disturbs nothing.
        """
        before, began = _bytes(folder), time.monotonic()
        if self._chance.random() < 0.1:
            time.sleep(self._chance.uniform(0, 5))
            return
        while _bytes(folder) == before and process.poll() is None:
            if time.monotonic() - began > MOST_SECONDS:
                raise RuntimeError(f"{self._kind} makes no progress in {folder}")
            time.sleep(0.01)
        time.sleep(self._chance.uniform(0, 0.2))


def _bytes(folder: Path) -> int:
    """How many bytes and files there are; it changes with everything that is kept."""
    try:
        return sum(1 + f.stat().st_size for f in folder.rglob("*") if f.is_file())
    except FileNotFoundError:
        return -1
