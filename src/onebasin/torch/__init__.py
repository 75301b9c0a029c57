"""PyTorch modules as JAX functions."""

from onebasin.torch.checkpoints import load_checkpoint
from onebasin.torch.convert import from_torch
from onebasin.torch.errors import ConversionError
from onebasin.torch.state import state_dict, to_torch
from onebasin.torch.table import operations, register

__all__ = [
    "ConversionError",
    "from_torch",
    "load_checkpoint",
    "operations",
    "register",
    "state_dict",
    "to_torch",
]
