"""What the page for PyTorch users says is so."""

import re
from pathlib import Path

import jax
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


def test_readme_code_runs() -> None:
    (code,) = re.findall(r"```py\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    inputs = torch.randn(5, 4)
    before = module(inputs).detach()
    exec(code, {"ob": ob, "jax": jax, "module": module, "inputs": inputs})
    torch.testing.assert_close(module(inputs).detach(), before, rtol=1e-4, atol=1e-5)
