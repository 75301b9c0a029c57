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
        gram: Products [s, p, q, i, j] of the reference's units with the other's; s the steps of
            loops that are told apart, p the units' parents, q those of them that roam.
        norms: Squared norms [s, p, i] of the reference's units, and of the other's.
        flipped_by: The sign generators of the factor that flip the value.
        turns: Signs (factor, generator) that flip the value as a whole, as those before a
            LayerNorm do, or all units of a parent, as those before a GroupNorm, or of a step.
        partner_gram: The same products of what the value is multiplied by, if that is data.
        partner_norms: Its squared norms.
        partner_turns: The signs that flip it as a whole or by parents, if it is data.
        term: The number of the parameter that it is multiplied by, among the terms of a pairing.
        layers: The index sets of the steps, one after the other; "" for what has none.
        steps: How many of each there are.
        term_steps: Where they are among the sides of the term.
        loose: Signs that flip units in each step by itself: for a match only sizes of products
            count.
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
    layers: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    term_steps: tuple[int, ...] = ()
    loose: Turns = ()
