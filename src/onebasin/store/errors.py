"""What goes wrong with files, each as one sentence for people."""

from __future__ import annotations


class StoreError(ValueError):
    """A run or a file could not be written, read or trusted; the message names the file."""


class CheckpointError(StoreError):
    """A file could not be written, or does not hold the model; the message is one sentence."""


class DamageWarning(UserWarning):
    """Part of a run cannot be trusted and was left out; the message names the files."""
