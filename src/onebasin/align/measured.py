"""What one place of a network gives to a cost on data."""

from __future__ import annotations

import dataclasses

import numpy as np

from onebasin.align.signs import Signature
from onebasin.align.sites import Turns


@dataclasses.dataclass(eq=False, slots=True)
class Measured:
    """What one place of a factor gives, summed over the data.

    Attributes:
        factor: The factor that is read there.
        gram: Products [p, q, i, j] of the reference's units with the other's; p their parents, q
            those that roam.
        norms: Squared norms [p, i] of the reference's units, and of the other's.
        flipped_by: The sign generators of the factor that flip the value.
        turns: Signs (factor, generator) that flip the value as a whole, as those before a
            LayerNorm do, or all units of a parent, as those before a GroupNorm.
        partner_gram: The same products of what the value is multiplied by, if that is data.
        partner_norms: Its squared norms.
        partner_turns: The signs that flip it as a whole or by parents, if it is data.
        term: The number of the parameter that it is multiplied by, among the terms of a pairing.
        steps: Where that parameter is another one in each step of a loop, the index sets of these
            loops; products and norms have them in front of p.
    """

    factor: str
    gram: np.ndarray
    norms: tuple[np.ndarray, np.ndarray]
    flipped_by: Signature
    turns: Turns = ()
    partner_gram: np.ndarray | None = None
    partner_norms: tuple[np.ndarray, np.ndarray] | None = None
    partner_turns: Turns = ()
    term: int | None = None
    steps: tuple[str, ...] = ()
