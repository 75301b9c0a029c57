"""Draws as ArviZ reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from onebasin.posterior import Draws
from onebasin.posterior.trees import named_leaves
from onebasin.store.errors import StoreError

if TYPE_CHECKING:
    import xarray


def to_datatree(draws: Draws) -> xarray.DataTree:
    """Draws as an xarray `DataTree`, which ArviZ takes: the modes are its chains.

    The group `posterior` has a variable for each leaf, of dimensions (chain, draw, ...), named by
    its path with dots, as `Dense_0.kernel`; `sample_stats` has the log density as `lp`, and the
    statistics. Draws of a chain stay in their order.

    Args:
        draws: As many of each mode.

    Raises:
        StoreError: If it got something else, modes have unequal counts, or xarray is not installed.

    Example:
        >>> import numpy as np
        >>> import onebasin as ob
        >>> draws = ob.Draws({"w": np.zeros((6, 2))}, mode=np.array([0, 1, 0, 1, 0, 1]))
        >>> ob.store.to_datatree(draws)["posterior"]["w"].sizes
        Frozen({'chain': 2, 'draw': 3, 'w_dim_0': 2})
    """
    try:
        import xarray
    except ImportError as error:
        raise StoreError(
            "a DataTree needs xarray, which is not installed: pip install 'onebasin[arviz]'."
        ) from error
    if not isinstance(draws, Draws):
        raise StoreError(f"got {type(draws).__name__}, expected Draws: see onebasin.Draws.")
    mode = np.asarray(draws.mode)
    modes, counts = np.unique(mode, return_counts=True)
    if len(set(counts.tolist())) > 1:
        said = ", ".join(f"mode {m} has {n}" for m, n in zip(modes, counts, strict=True))
        raise StoreError(
            f"chains of a DataTree have equally many draws, and {said}: leave some out, as "
            f"draws.of_mode({modes[counts.argmax()]})[:{counts.min()}]."
        )
    order = np.argsort(mode, kind="stable").reshape(len(modes), -1)
    coordinates = {"chain": modes, "draw": np.arange(order.shape[1])}

    def dataset(leaves: list[tuple[str, Any]]) -> xarray.Dataset:
        variables = {}
        for path, leaf in leaves:
            name, array = path.replace("/", "."), np.asarray(leaf)[order]
            inner = [f"{name}_dim_{axis}" for axis in range(array.ndim - 2)]
            variables[name] = (("chain", "draw", *inner), array)
        return xarray.Dataset(variables, coordinates)

    groups = {"posterior": dataset(named_leaves(draws.params))}
    statistics = named_leaves(draws.statistics)
    if draws.log_density is not None:
        statistics = [("lp", draws.log_density), *statistics]
    if statistics:
        groups["sample_stats"] = dataset(statistics)
    return xarray.DataTree.from_dict(groups)
