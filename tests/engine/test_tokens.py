"""Joining a cluster that others can reach: not without a word where it asks for no token."""

import enum
import importlib.util
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from onebasin.engine import cluster


class Mode(enum.Enum):
    """Ray's own names."""

    DISABLED = 0
    TOKEN = 1


def ray(mode: Mode) -> SimpleNamespace:
    """As much of Ray as says how it was set."""
    raylet = SimpleNamespace(AuthenticationMode=Mode, get_authentication_mode=lambda: mode)
    return SimpleNamespace(_raylet=raylet)


@pytest.mark.parametrize("address", ["10.0.0.1:6379", "head.local:6379", "[fd00::1]:6379"])
def test_no_token_is_warned_of(address: str) -> None:
    with pytest.warns(RuntimeWarning, match="without a token.*RAY_AUTH_MODE=token"):
        cluster.warn_of_no_token(ray(Mode.DISABLED), address)


@pytest.mark.parametrize("address", ["127.0.0.1:6379", "localhost:1", "[::1]:6379", "127.1.2.3:4"])
def test_addresses_of_this_machine_alone_are_not(address: str) -> None:
    cluster.warn_of_no_token(ray(Mode.DISABLED), address)


def test_a_token_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.warn_of_no_token(ray(Mode.TOKEN), "10.0.0.1:6379")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    older = SimpleNamespace(_raylet=SimpleNamespace())
    cluster.warn_of_no_token(older, "10.0.0.1:6379")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.warns(RuntimeWarning, match="without a token"):
        cluster.warn_of_no_token(older, "10.0.0.1:6379")


JOINS = """
import warnings
from onebasin.engine import EngineError, cluster
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    try:
        # An address for documentation, where nobody answers.
        cluster.ANSWER_SECONDS = 0.2
        cluster.connect("192.0.2.1:6379")
    except EngineError as error:
        assert "does not answer" in str(error)
print(sum("without a token" in str(warning.message) for warning in seen))
"""


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
@pytest.mark.parametrize(("mode", "count"), [("disabled", "1"), ("token", "0")])
def test_joining_says_so(mode: str, count: str) -> None:
    environment = {**os.environ, "RAY_AUTH_MODE": mode, "RAY_AUTH_TOKEN": "0" * 64}
    done = subprocess.run(
        [sys.executable, "-c", JOINS],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.strip() == count
