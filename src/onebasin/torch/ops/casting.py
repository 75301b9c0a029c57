"""Changes of type, and operations that do nothing in inference."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax

from onebasin.torch.ops.layout import shortcut
from onebasin.torch.table import Family

casting = Family("casting")


def _same(x: Any, *_: Any, **__: Any) -> Any:
    return x


def _size(x: Any, dim: int) -> int:
    return x.shape[dim]


shortcut(_same)(_same)
shortcut(_size)(_size)


def _nothing(*_: Any, **__: Any) -> None:
    return None


casting.rows(
    {
        "detach": lambda x: lax.stop_gradient(x),
        "lift_fresh_copy": _same,
        "lift_fresh": _same,
        # Refused before, where it would be at work.
        "dropout": _same,
        "alpha_dropout": _same,
        "feature_alpha_dropout": _same,
        "feature_dropout": _same,
        "native_dropout": lambda x, *_: (x, np.ones(x.shape, bool)),
        "sym_size.int": _size,
        "sym_size": lambda x: list(x.shape),
        "sym_numel": lambda x: x.size,
        "size": lambda x, dim=None: list(x.shape) if dim is None else x.shape[dim],
        "numel": lambda x: x.size,
        "_assert_async": _nothing,
        "_assert_scalar": _nothing,
        "_assert_tensor_metadata": _nothing,
        "sym_constrain_range": _nothing,
        "sym_constrain_range_for_size": _nothing,
    }
)


@casting("_to_copy", "to.dtype", "to.dtype_layout", "to.device", "type_as", "to.other")
def to(x: Any, *args: Any, dtype: Any = None, **_: Any) -> Any:
    for argument in args:
        if isinstance(argument, np.dtype) or hasattr(argument, "dtype"):
            dtype = getattr(argument, "dtype", argument) if dtype is None else dtype
            break
    return x if dtype is None else x.astype(dtype)


@casting("view.dtype")
def view_dtype(x: Any, dtype: Any) -> Any:
    return lax.bitcast_convert_type(x, dtype)
