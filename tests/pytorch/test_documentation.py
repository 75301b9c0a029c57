"""What the page for PyTorch users says is so."""

import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest
import torch
from torch import nn

import onebasin as ob

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "torch.md"


def code(name: str) -> str:
    return f"`{name.removeprefix('aten.')}`"


def table() -> str:
    rows = [
        f"| {family} | {' '.join(map(code, names))} |"
        for family, names in ob.torch.operations().items()
    ]
    return "\n".join(["| family | operators |", "|---|---|", *rows])


def test_table_of_operators_is_complete() -> None:
    found = re.search(r"<!-- begin table -->\n(.*)\n<!-- end table -->", PAGE.read_text(), re.S)
    assert found is not None
    assert found[1] == table(), f"write this between the marks in {PAGE}:\n{table()}"


def merging() -> str:
    """The mean over pairs of what the benchmark of merging found."""
    rows = json.loads((ROOT / "results" / "bench" / "torch-merging.json").read_text())["rows"]
    lines = ["| moved by | MLP | errors | ResNet | errors |", "|---|---|---|---|---|"]
    for way in dict.fromkeys(row["way"] for row in rows):
        cells = []
        for model in ("MLP", "ResNet"):
            own = [row for row in rows if (row["way"], row["model"]) == (way, model)]
            if not own:
                cells += ["", ""]
                continue
            barrier, error = (np.mean([row[key] for row in own]) for key in ("barrier", "error"))
            cells += [f"{barrier:.3f}", f"{100 * error:.1f}%"]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    return "\n".join(lines)


def test_merging_is_as_measured() -> None:
    found = re.search(r"<!-- begin merging -->\n(.*)\n<!-- end merging -->", PAGE.read_text(), re.S)
    assert found is not None
    assert found[1] == merging(), f"write this between the marks in {PAGE}:\n{merging()}"


def test_ten_lines_from_modules_to_a_merged_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 11
    torch.manual_seed(0)
    first, second = (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)) for _ in range(2))
    before = first[0].weight.detach().clone()
    exec(code, {"first": first, "second": second, "inputs": torch.randn(50, 4), "torch": torch})
    merged = torch.load("merged.pt", weights_only=True)
    assert torch.equal(merged["0.weight"], first[0].weight)
    assert not torch.equal(merged["0.weight"], before)


def test_further_lines() -> None:
    batch_norm, modules = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)[1:3]
    torch.manual_seed(0)
    first, second = (
        nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).eval()
        for _ in range(2)
    )
    inputs = torch.randn(50, 4)
    net, a = ob.from_torch(first, inputs)
    names = {
        **{"ob": ob, "first": first, "second": second, "inputs": inputs, "net": net, "a": a},
        **{"b": ob.from_torch(second, inputs)[1], "labels": torch.randint(0, 3, (50,))},
        "sym": ob.discover(net.apply, a, inputs),
    }
    exec(batch_norm, names)
    assert not np.allclose(names["merged"]["1.running_mean"], 0)
    exec(modules, names)
    assert names["problem"].num_examples == 50


def test_readme_code_runs() -> None:
    (code,) = re.findall(r"```py\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    inputs = torch.randn(5, 4)
    before = module(inputs).detach()
    exec(code, {"ob": ob, "jax": jax, "module": module, "inputs": inputs})
    torch.testing.assert_close(module(inputs).detach(), before, rtol=1e-4, atol=1e-5)
