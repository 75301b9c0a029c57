"""Hashes of files, each computed once for as long as nobody touches the file."""

from __future__ import annotations

import time

from onebasin.store.reading import State, TensorFile

# Two writes within a tick of the clock of the file system leave the same time behind.
TICK = 50_000_000
MOST = 2**17

_known: dict[State, str] = {}


def sha256_known(file: TensorFile) -> str:
    """The hash of an open file, which is read for it unless that was done before."""
    state = file.state()
    if state not in _known:
        return sha256_anew(file)
    return _known[state]


def sha256_anew(file: TensorFile) -> str:
    """The hash of an open file as it is now."""
    began, state = time.time_ns(), file.state()
    found = file.sha256()
    settled = not 0 <= began - max(state[-2:]) < TICK
    if settled and file.state() == state:
        if len(_known) >= MOST:
            _known.clear()
        _known[state] = found
    return found
