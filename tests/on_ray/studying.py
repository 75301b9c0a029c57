"""A study as a driver that tests start and kill: python -m on_ray.studying ENGINE ADDRESS FOLDER.

It prints the sentence of every stage, and "end" when all are done. With ONEBASIN_THOROUGH it is the
study of populations, and a toy otherwise.
"""

import os
import sys
from pathlib import Path
from typing import Any

from onebasin import studies
from onebasin.engine import open_engine

from . import toy

TINY = {
    "train_size": 100,
    "test_size": 40,
    "net": {"kind": "mlp", "hidden": [4]},
    "train": {"epochs": 4, "batch_size": 50, "learning_rate": 0.02},
    "variational": {"epochs": 4, "batch_size": 50, "learning_rate": 0.03},
    "chains": {"num_warmup": 2, "max_leapfrogs": 4, "thin": 2},
    "methods": ["mean_field", "sghmc"],
    "num_samples": 4,
    "modes": 2,
    "repeats": 2,
    "resamples": 20,
    "networks_per_task": 2,
    "toy": {"num_networks": 10, "epochs": 2, "points": 20},
}


def chosen() -> tuple[Any, Any]:
    if not os.environ.get("ONEBASIN_THOROUGH"):
        return toy.study, studies.StudyConfig(networks_per_task=2)
    study = studies.get("exploration")
    return study, studies.load_config(study.config, "exploration", overrides=TINY)


def main() -> None:
    engine_name, address, folder = sys.argv[1:]
    where = {"address": address} if address != "none" else {}
    study, config = chosen()
    study.run(
        config,
        Path(folder),
        say=lambda sentence: print(sentence, flush=True),
        engine=lambda work: open_engine(
            engine_name, directory=work, networks_per_task=config.networks_per_task, **where
        ),
    )
    print("end", flush=True)


if __name__ == "__main__":
    # By the name that workers import it by.
    from on_ray import studying

    studying.main()
