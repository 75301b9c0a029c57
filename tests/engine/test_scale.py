"""The model of cost: simple cases by hand, and the page that it writes."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model() -> Any:
    spec = importlib.util.spec_from_file_location("scale_model", ROOT / "benchmarks/scale_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["scale_model"] = module
    spec.loader.exec_module(module)
    return module


def cluster(model: Any, **changes: Any) -> Any:
    plain = {"nodes": 2, "slots": 5, "speed": 1.0, "bandwidth": 1e9, "link": 1e9}
    return model.Cluster(**{**plain, "operations": 1e9, "hand_out": 1e9, **changes})


def test_workers_share_what_is_to_be_computed(model: Any) -> None:
    found = model.simulate(model.Work("w", 100, 3.0, 0.0, 0.0), cluster(model))
    assert found["seconds"] == pytest.approx(30, rel=1e-3)
    assert found["saturated"] == "workers"


@pytest.mark.parametrize(
    ("part", "changes"),
    [("driver", {"hand_out": 0.5}), ("bytes", {"bandwidth": 5.0}), ("files", {"operations": 2.0})],
)
def test_the_narrowest_part_sets_the_time(model: Any, part: str, changes: Any) -> None:
    found = model.simulate(model.Work("w", 100, 3.0, 5.0, 5.0), cluster(model, **changes))
    assert found["saturated"] == part
    assert found["seconds"] == pytest.approx(200, rel=0.05)


def test_many_tasks_are_simulated_by_a_share(model: Any) -> None:
    many = model.MOST_SIMULATED * 10
    found = model.simulate(model.Work("w", many, 3.0, 0.0, 0.0), cluster(model, nodes=200))
    assert found["seconds"] == pytest.approx(3 * many / 1000, rel=0.01)


def test_the_page_says_what_was_measured() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/scale_model.py", "--page", "docs/scale.md", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
