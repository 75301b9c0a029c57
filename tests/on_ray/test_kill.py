"""Workers, nodes and drivers that are killed at any moment: nothing lost, nothing doubled."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from . import driver, processes

TIMES = 10 if os.environ.get("ONEBASIN_THOROUGH") else 2
COUNT = 25 * TIMES
SECONDS = 0.15


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("undisturbed")
    processes.ended(processes.start("local", "none", folder, COUNT, 0))
    return driver.checksums(folder)


def check(folder: Path, expected: dict[str, str], receipts: list[int]) -> None:
    assert driver.checksums(folder) == expected
    assert len(expected) == COUNT
    assert len(set(receipts)) == len(receipts)


def test_workers(three_nodes: Any, tmp_path: Path, expected: dict[str, str]) -> None:
    chance = random.Random(0)
    running = processes.start("ray", three_nodes.address, tmp_path, COUNT, SECONDS)
    killed = 0
    assert running.stdout is not None
    first = [running.stdout.readline() for _ in range(2)]
    while killed < TIMES and running.poll() is None:
        time.sleep(chance.uniform(0.1, 1.0))
        busy = [
            p
            for p in processes.workers(*three_nodes.list_all_nodes())
            if "call" in processes.title(p)
        ]
        if busy:
            processes.kill(chance.choice(busy))
            killed += 1
    receipts = processes.ended(running) + [int(line) for line in first if line.strip().isdigit()]
    assert killed == TIMES
    assert sorted(receipts) == list(range(COUNT))
    check(tmp_path, expected, receipts)


def test_nodes(three_nodes: Any, tmp_path: Path, expected: dict[str, str]) -> None:
    chance = random.Random(1)
    running = processes.start("ray", three_nodes.address, tmp_path, COUNT, SECONDS)
    assert running.stdout is not None
    first = [running.stdout.readline() for _ in range(2)]
    killed = 0
    while killed < TIMES and running.poll() is None:
        time.sleep(chance.uniform(0.1, 1.0))
        node = chance.choice(sorted(three_nodes.worker_nodes, key=lambda n: n.node_id))
        gone = processes.below(processes.raylet(node))
        processes.kill(processes.raylet(node))
        for pid in gone:
            if processes.title(pid).startswith("ray::"):
                processes.kill(pid)
        three_nodes.remove_node(node, allow_graceful=False)
        killed += 1
        three_nodes.add_node(num_cpus=1)
    receipts = processes.ended(running) + [int(line) for line in first if line.strip().isdigit()]
    assert killed == TIMES
    assert sorted(receipts) == list(range(COUNT))
    check(tmp_path, expected, receipts)


def test_drivers(three_nodes: Any, tmp_path: Path, expected: dict[str, str]) -> None:
    chance = random.Random(2)
    kept: set[str] = set()
    for number in range(TIMES):
        running = processes.start("ray", three_nodes.address, tmp_path, COUNT, SECONDS)
        assert running.stdout is not None
        # Some are killed before the first receipt, some after.
        for _ in range((1, 8, 2)[number % 3]):
            assert running.stdout.readline()
        time.sleep(chance.uniform(0, 0.3))
        running.send_signal(signal.SIGKILL)
        running.communicate()
        done = set(driver.checksums(tmp_path))
        assert kept <= done
        kept = done
    assert kept
    receipts = processes.ended(
        processes.start("ray", three_nodes.address, tmp_path, COUNT, SECONDS)
    )
    assert len(receipts) <= COUNT - len(kept)
    check(tmp_path, expected, receipts)
