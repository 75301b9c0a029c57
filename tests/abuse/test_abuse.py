"""A little of what `python -m abuse` does for hours: kills, damage, strangers, full disks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def abuse(*arguments: str) -> None:
    """Runs it; what failed is in the message."""
    done = subprocess.run(
        [sys.executable, "-m", "abuse", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "benchmarks"), *sys.path])},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


READERS = ("run", "posteriors", "load_params", "symmetry", "sections", "report", "data")


@pytest.mark.parametrize("seed", ["1", "2"])
def test_damaged_files_end_in_an_error_of_ours(seed: str) -> None:
    abuse("mutations", "--one-process", "--count", "80", "--seed", seed, "--readers", *READERS)


def test_configurations_that_mean_harm_are_refused() -> None:
    abuse("mutations", "--count", "30", "--seed", "3", "--readers", "configuration")


HOSTILE = {
    "names": ("named up", "as in a copy", "named NUL", "called .."),
    "links": ("of another run", "a lock", "a report", "tables", "a stage elsewhere"),
    "pipes": ("a pipe", "a device"),
    "copies": ("kept",),
}


@pytest.mark.parametrize("only", HOSTILE.values(), ids=HOSTILE)
def test_nothing_outside_of_a_strangers_folder_is_touched(only: tuple[str, ...]) -> None:
    abuse("hostile", "--only", *only)


def test_work_that_is_killed_or_without_power_ends_as_if_nothing_had_been() -> None:
    abuse("kills", "--kinds", "mean_field", "--count", "1", "--power-cuts", "1")


def test_a_full_disk_loses_nothing() -> None:
    abuse("full-disk", "--kinds", "mean_field", "--every", "60")
