"""What a module returns, in containers that torch and JAX know; caches are left out."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from onebasin.torch.tensors import pytorch

_LEFT_OUT = object()


@contextlib.contextmanager
def plainly(module: Any) -> Iterator[None]:
    """Runs a module without the cache of a language model, and has it return plain containers.

    Configurations that ask for a cache (`config.use_cache`) are told not to, and the module's
    `forward` gives what `plain` makes of its outputs; both are put back afterwards.
    """
    forward = module.forward
    own = vars(module).get("forward", _LEFT_OUT)

    @functools.wraps(forward)
    def returning(*args: Any, **kwargs: Any) -> Any:
        return plain(forward(*args, **kwargs))

    asking = _asking(module)
    for config in asking:
        config.use_cache = False
    module.forward = returning
    try:
        yield
    finally:
        if own is _LEFT_OUT:
            del module.forward
        else:
            module.forward = own
        for config in asking:
            config.use_cache = True


def _asking(module: Any) -> list[Any]:
    """The configurations in a module that ask for a cache."""
    found: dict[int, Any] = {}
    for child in module.modules():
        config = getattr(child, "config", None)
        parts = vars(config).values() if hasattr(config, "__dict__") else ()
        for each in (config, *parts):
            if getattr(each, "use_cache", None) is True:
                found[id(each)] = each
    return list(found.values())


def plain(outputs: Any) -> Any:
    """Outputs as tensors in dictionaries, lists and (named) tuples, without caches."""
    found = _plain(outputs)
    return None if found is _LEFT_OUT else found


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, pytorch().Tensor):
        return value
    # Some caches are mappings or lists of their tensors, others are of no kind that torch knows.
    if any(kind.__name__.endswith("Cache") for kind in type(value).__mro__):
        return _LEFT_OUT
    if isinstance(value, Mapping):
        return _kept(value)
    if isinstance(value, list | tuple):
        items = [x for x in map(_plain, value) if x is not _LEFT_OUT]
        if isinstance(value, list):
            return items
        whole = hasattr(value, "_fields") and len(items) == len(value)
        return type(value)(*items) if whole else tuple(items)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _kept(
            {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        )
    return value


def _kept(items: Mapping[Any, Any]) -> dict[Any, Any]:
    found = {name: _plain(x) for name, x in items.items()}
    return {name: x for name, x in found.items() if x is not _LEFT_OUT}
