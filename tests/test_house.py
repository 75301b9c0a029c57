import importlib
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "ray", "flax", "blackjax", "matplotlib", "plotly")


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120
    )


def test_imports_point_one_way() -> None:
    lint = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"
    done = run("-c", lint)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def imported() -> set[str]:
    done = run("-W", "error", "-c", "import onebasin, sys; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize("package", HEAVY)
def test_import_is_light(imported: set[str], package: str) -> None:
    assert package not in imported


def test_one_version() -> None:
    import onebasin

    assert onebasin.__version__ == version("onebasin")
    for file, line in {
        "pyproject.toml": f'version = "{onebasin.__version__}"',
        "CITATION.cff": f"version: {onebasin.__version__}",
    }.items():
        assert line in (ROOT / file).read_text().splitlines()


def test_public_names_resolve() -> None:
    import onebasin

    missing = [name for name in onebasin.__all__ if not hasattr(onebasin, name)]
    assert not missing


def test_public_names_have_docstrings() -> None:
    import onebasin

    bare = []
    for name in onebasin.__all__:
        public = getattr(onebasin, name)
        members = vars(public).items() if isinstance(public, type) else ()
        bare += [name] if not public.__doc__ else []
        bare += [
            f"{name}.{member}"
            for member, value in members
            if not member.startswith("_")
            and isinstance(value, FunctionType | property | classmethod | staticmethod)
            and not value.__doc__
        ]
    assert not bare


def test_cited_papers_are_in_the_bibliography() -> None:
    known = set(re.findall(r"^@\w+\{(\w+),", (ROOT / "docs" / "refs.bib").read_text(), re.M))
    cited = {
        key
        for file in (ROOT / "src").rglob("*.py")
        for key in re.findall(r"\b[a-z]+(?:19|20)\d\d[a-z0-9]+\b", file.read_text())
    }
    assert cited <= known


def executed(page: str) -> dict[str, Any]:
    """What the code of a page leaves behind."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
    assert blocks
    namespace: dict[str, Any] = {}
    for block in blocks:
        exec(block, namespace)
    return namespace


def test_code_of_the_tutorial_runs() -> None:
    executed("docs/tutorial.md")


def test_code_of_the_readme_runs_and_is_as_accurate_as_it_says() -> None:
    left = executed("README.md")
    ob, net, draws, digits = (left[name] for name in ("ob", "net", "draws", "digits"))
    distilled, weights = (
        ob.compact(left["sym"], draws, **options).posterior
        for options in (
            {"apply_fn": net.apply, "inputs": left["train"][0], "refine": "distil"},
            {},
        )
    )
    found = []
    for posterior in (draws, left["one"].posterior, distilled, weights):
        size = {} if posterior is draws else {"num_samples": 20}
        probs = ob.predict(net.apply, posterior, digits.test[0].reshape(-1, 64), **size)
        found.append(100 * float(ob.metrics.accuracy(digits.test[1], probs)))
    text = (ROOT / "README.md").read_text()
    said = re.findall(r"(\d+) %", text[text.index("The draws together are right") :])[:4]
    # Another processor sums in another order; the last is what no one should rely on.
    np.testing.assert_allclose(found[:3], np.array(said[:3], float), atol=2.5)
    assert abs(found[3] - float(said[3])) < 10


def test_numbers_of_the_pages_are_those_of_the_results() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs/page_numbers.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = [(ROOT / page).read_text() for page in ("README.md", "docs/studies.md")]
    blocks = [page.count("<!-- numbers: ") for page in pages]
    assert blocks == [page.count("<!-- end -->") for page in pages]
    assert blocks[0] >= 2


def test_a_wrong_number_in_a_sentence_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    pages = importlib.import_module("page_numbers")
    row = "W2 geodesic (as published), W2-aligned"
    mark = f"<!--= variational paths paths :: {row} :: test loss -->"
    assert pages.renewed(f"some 0.99{mark} nats") == f"some 0.05{mark} nats"
    assert pages.renewed(f"some 7.123{mark} nats") == f"some 0.046{mark} nats"
    with pytest.raises(KeyError, match="no such row"):
        pages.renewed(f"0.05{mark.replace(row, 'no such row')}")


AIMS = {"0.985", "0.035", "0.995", "0.015", "0.993", "0.02", "0.04", "0.005", "0.8", "0.4"}
SETTINGS = {"0.9", "0.02", "0.001", "0.01", "0.0025"}
PUBLISHED = {"1.74", "0.45", "79.5"}
TOLD_BY_A_STAGE = {"38.4"}


def test_results_in_sentences_are_marked() -> None:
    """Decimals that stand outside tables are cells of results, or aims, settings, published."""
    text = (ROOT / "docs/results.md").read_text()
    text = re.sub(r"<!-- (our )?numbers: .*?<!-- end -->", "", text, flags=re.DOTALL)
    text = re.sub(r"-?\d+(\.\d+)?( %)?<!--= .*?-->", "", text)
    loose = set(re.findall(r"(?<![\w.`-])\d+\.\d+", text))
    assert loose <= AIMS | SETTINGS | PUBLISHED | TOLD_BY_A_STAGE
    mass = ROOT / "results/exploration-cifar100/stages/excess-mass/section.json"
    assert all(f"{said} %" in mass.read_text() for said in TOLD_BY_A_STAGE)
