"""The table of speeds, from what the benchmarks wrote under `results/bench`."""

from __future__ import annotations

import json
import pathlib
from typing import Any

BENCH = pathlib.Path(__file__).parent.parent / "results" / "bench"
HEAD = ("work", "against", "goal", "measured", "machine", "command")


def read(name: str) -> dict[str, Any]:
    """What one benchmark wrote."""
    found: dict[str, Any] = json.loads((BENCH / f"{name}.json").read_text(encoding="utf-8"))
    return found


def row(name: str, work: str, against: str, goal: str, measured: str) -> tuple[str, ...]:
    """One line of the table."""
    command, _, kind = name.partition("-")
    where = read(name)["machine"]
    machine = f"one GPU; {where}" if kind == "gpu" else where
    return work, against, goal, measured, machine, f"`benchmarks/{command}.py`"


def times(ratio: float) -> str:
    """A ratio as a person reads it."""
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.1f}x"


def chosen(name: str, count: int) -> float:
    """How much faster a population of OptuNets is, grouped as the library chooses."""
    [found] = [
        line["ratio"]
        for line in read(name)["rows"]
        if (line["network"], line["count"], line["chosen"]) == ("optunet", count, True)
    ]
    return float(found)


def alignment() -> list[tuple[str, ...]]:
    """Matching a pair, and many draws."""
    goals = {512: "8x", 1024: "6x", 2048: "10x"}
    plain = "plain coordinate descent with SciPy"
    rows = [
        row(
            "matching",
            f"matching two MLPs of width {line['width']}, one core",
            plain,
            goals[line["width"]],
            f"{times(line['ratio'])}; the whole call of `align` {times(line['call ratio'])}",
        )
        for line in read("matching")["rows"]
    ]
    many = read("many")
    first = many["rows"][0]
    measured = (
        f"{times(first['ratio'])}; {times(first['ratio of processor time'])} in processor time"
    )
    rows.append(
        row(
            "many",
            f"{first['draws']} draws of 784-{first['width']}-10 to a common mean",
            "the same, draw by draw",
            "10x",
            measured,
        )
    )
    last = many["dependent factors"]
    rows.append(
        row(
            "many",
            f"rounds of {last['draws']:,} OptuNets",
            "the same rounds, draw by draw",
            "",
            times(last["ratio"]),
        )
    )
    return rows


def others() -> list[tuple[str, ...]]:
    """Discovery, minimum mass, populations, HMC and MMD."""
    rows = []
    for line in read("discovery")["rows"]:
        if line["model"] in ("ResNet-50", "ViT-B/16"):
            measured = f"{line['analysis_seconds']:.1f} s; {line['proof_seconds']:.1f} s to prove"
            rows.append(row("discovery", f"discovery, {line['model']}", "", "under 5 s", measured))
    ratio = read("minimum_mass")["ratio per parameter"]
    rows.append(
        row(
            "minimum_mass",
            "minimum mass of ResNet-18, per parameter",
            "cvxpy on the largest that it solves",
            "1,000x",
            times(ratio),
        )
    )
    for name, goal in (("population-cpu", "above 2x"), ("population-gpu", "10x")):
        against = "a loop over jitted single ones"
        rows.append(row(name, "training 64 OptuNets", against, goal, times(chosen(name, 64))))
    for name in ("hmc-cpu", "hmc-gpu"):
        ratios = [line["ratio"] for line in read(name)["rows"]]
        measured = f"{times(min(ratios))} to {times(max(ratios))}"
        rows.append(row(name, "leapfrogs of HMC per second", "numpyro", "1x", measured))
    for line in read("mmd")["rows"]:
        work = f"MMD of {line['draws']:,} x {line['draws']:,} draws, {line['kernel']} kernel"
        rows.append(row("mmd", work, "SciPy's cdist", "3x", times(line["ratio to cdist"])))
    return rows


def table() -> str:
    """All of it in Markdown."""
    lines = [HEAD, ("---",) * len(HEAD), *alignment(), *others()]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
