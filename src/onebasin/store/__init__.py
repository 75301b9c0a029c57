"""Networks and posteriors as files."""

from onebasin.store.checkpoint import CheckpointError, load_params, save_params

__all__ = ["CheckpointError", "load_params", "save_params"]
