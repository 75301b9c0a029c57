"""A driver that tests start and kill: python -m on_ray.driver ENGINE ADDRESS FOLDER COUNT SECONDS.

Each task writes one sealed file. It prints a line for every receipt, and "end" when all are done.
"""

import hashlib
import os
import sys
import time
from pathlib import Path

import numpy as np

from onebasin.engine import Task, open_engine, run_tasks
from onebasin.store.sealed import is_sealed, seal


def question(number: int) -> str:
    return hashlib.sha256(f"toy {number}".encode()).hexdigest()


def place(folder: str, number: int) -> Path:
    return Path(folder) / "results" / f"{number:06d}-{question(number)[:12]}.safetensors"


def work(folder: str, number: int, seconds: float) -> dict[str, int]:
    path = place(folder, number)
    if not is_sealed(path, question(number)):
        time.sleep(seconds)
        values = np.random.default_rng(number).normal(size=(200, 50))
        seal(path, question(number), {"values": values})
    return {"number": number}


def checksums(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((folder / "results").glob("[!.]*"))
    }


def main() -> None:
    engine_name, address, folder, count, seconds = sys.argv[1:]
    where = {"address": address} if address != "none" else {}
    with open_engine(engine_name, directory=folder, **where) as engine:
        print("open", os.getpid(), flush=True)
        tasks = (
            Task(f"toy/{i}", work, (folder, i, float(seconds)))
            for i in range(int(count))
            if not is_sealed(place(folder, i), question(i))
        )
        for receipt in run_tasks(engine, tasks):
            print(receipt.value["number"], flush=True)
    print("end", flush=True)


if __name__ == "__main__":
    # By the name that workers import it by.
    from on_ray import driver

    driver.main()
