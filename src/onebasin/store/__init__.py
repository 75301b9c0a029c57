"""Networks, posteriors and runs as files."""

from onebasin.store.checkpoint import load_params, save_params
from onebasin.store.checkpoint_set import CheckpointSet
from onebasin.store.datatree import to_datatree
from onebasin.store.errors import CheckpointError, DamageWarning, StoreError
from onebasin.store.posteriors import load, save
from onebasin.store.recovery import Recovery
from onebasin.store.run import Run
from onebasin.store.stream import StoredStream
from onebasin.store.torch_layout import open_torch
from onebasin.store.torch_mappings import TorchTensor, torch_mapping
from onebasin.store.transaction import Transaction

__all__ = [
    "CheckpointError",
    "CheckpointSet",
    "DamageWarning",
    "Recovery",
    "Run",
    "StoreError",
    "StoredStream",
    "TorchTensor",
    "Transaction",
    "load",
    "load_params",
    "open_torch",
    "save",
    "save_params",
    "to_datatree",
    "torch_mapping",
]
