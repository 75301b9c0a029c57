"""What manifests are made of: values as JSON has them, times and versions."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from onebasin.store.errors import StoreError

# Less than what readers take, as a manifest has levels of its own.
DEEPEST = 90


def plain(value: Any, name: str, depth: int = 0) -> Any:
    """A value as JSON keeps it, so that it compares equal to what is read back.

    Args:
        value: Dictionaries, lists, strings, numbers, arrays of numbers, None.
        name: What to call it, in an error.
        depth: In how many containers it lies.

    Raises:
        StoreError: If part of it has no place in JSON; it names the part.
    """
    if depth > DEEPEST:
        raise StoreError(f"{name:.60}... is nested more than {DEEPEST} deep: keep less in it.")
    if isinstance(value, np.ndarray | np.generic | jax.Array) and value.dtype.kind in "biuf":
        return value.tolist()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        if len({str(key) for key in value}) < len(value):
            raise StoreError(f"two keys of {name} are written alike, as text: rename one.")
        return {str(key): plain(x, f"{name}.{key}", depth + 1) for key, x in value.items()}
    if isinstance(value, tuple | list):
        return [plain(x, f"{name}[{place}]", depth + 1) for place, x in enumerate(value)]
    raise StoreError(
        f"{name} is {type(value).__name__} {value!r:.60}, expected what JSON can hold: strings, "
        "numbers, lists and dictionaries of them."
    )


def difference(ours: Any, theirs: Any, name: str) -> str | None:
    """The first place where two values from JSON differ, as a clause; None if they do not."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in dict.fromkeys([*theirs, *ours]):
            inner = f"{name}.{key}"
            if key not in ours or key not in theirs:
                has, value = ("here", ours) if key in ours else ("there", theirs)
                return f"only {has} is {inner} given ({value[key]!r:.60})"
            found = difference(ours[key], theirs[key], inner)
            if found:
                return found
        return None
    same = json.dumps(ours, sort_keys=True) == json.dumps(theirs, sort_keys=True)
    return None if same else f"{name} is {theirs!r:.60} there and {ours!r:.60} here"


def now() -> str:
    """The time, as manifests write it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """What the numbers of a run depend on, beside its config and seeds."""
    device = jax.devices()[0]
    return {
        **{name: version_of(name) for name in ("onebasin", "jax", "numpy")},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": f"{device.platform}: {device.device_kind}",
    }


def made_with() -> dict[str, str]:
    """Those of the versions with which a task that is done again finds the same."""
    return {k: v for k, v in versions().items() if k in ("onebasin", "jax", "device")}


def version_of(name: str) -> str:
    """The version of a package, or that it runs from its sources."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed: run from its sources"
