"""Libraries brought in without what they do on the side."""

from __future__ import annotations

import contextlib
import os
import random
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def side_effects_undone() -> Iterator[None]:
    """Puts back Python's random state, the environment and the warning filters as they were.

    Some libraries draw random numbers, set variables or add filters when they are imported; whoever
    seeded `random` before would get other numbers for that.
    """
    state, environment = random.getstate(), dict(os.environ)
    try:
        with warnings.catch_warnings():
            yield
    finally:
        random.setstate(state)
        _restore(environment)


def _restore(environment: dict[str, str]) -> None:
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
