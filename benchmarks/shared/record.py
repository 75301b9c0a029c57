"""Results as they are kept: numbers with versions and date, and figures that print in grey."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import platform
from importlib import metadata
from typing import Any

import jax
import matplotlib

matplotlib.use("Agg")

PACKAGES = ("onebasin", "jax", "numpy", "scipy", "lapx", "cvxpy", "flax", "torch", "ray")
MARKERS = ("o", "s", "^", "D")
LINES = ("-", "--", ":", "-.")


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> str:
    """What the numbers were measured on: the accelerator, or else the processor."""
    processor = f"{platform.machine()}, {os.cpu_count()} cores"
    device = jax.devices()[0]
    return processor if device.platform == "cpu" else f"{device.device_kind}, {processor}"


def save(out: pathlib.Path | None, name: str, result: dict[str, Any], figure: Any = None) -> None:
    """Writes NAME.json, and NAME.png if there is a figure, into a folder."""
    if out is None:
        return
    out.mkdir(parents=True, exist_ok=True)
    record = {
        "benchmark": name,
        "date": datetime.date.today().isoformat(),
        "versions": versions(),
        "machine": machine(),
        **result,
    }
    (out / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if figure is not None:
        figure.savefig(out / f"{name}.png", dpi=150, bbox_inches="tight")
