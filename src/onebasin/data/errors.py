"""What goes wrong with data, each as one sentence for people."""

from __future__ import annotations


class DataError(ValueError):
    """A data set is not known, not there, or not what it should be."""
