"""Whether a proof could have failed: what the outputs see of each factor and of each parameter."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from onebasin.symmetry.elements import Element, act_on_leaf
from onebasin.symmetry.errors import SymmetryError
from onebasin.symmetry.group import Factor, Symmetry
from onebasin.symmetry.probes import only, random_element
from onebasin.symmetry.trial import Trial

NUM_ELEMENTS = 2
# A slope is a change that is not made yet; it has to be clear.
CLEAR = 10
# What is invisible to the last bit in as many choices of parameters is taken to be so by itself.
ENOUGH = 2


@dataclasses.dataclass(slots=True)
class Place:
    """A parameter that a factor moves, or (None) that is moved by none.

    Attributes:
        factor: The factor.
        number: Which leaf the parameter is.
        change: The largest that leaving it out made so far.
        looks: How often it was invisible to the last bit.
    """

    factor: Factor | None
    number: int
    change: float = 0.0
    looks: int = 0


class Power:
    """What the outputs were seen to depend on, in one trial after the other."""

    def __init__(self, symmetry: Symmetry):
        self.symmetry = symmetry
        self.seen: set[str] = set()
        numbers = {leaf.path: number for number, leaf in enumerate(symmetry.leaves)}
        self.open = [
            Place(factor, numbers[path])
            for factor in symmetry.factors
            for path in dict.fromkeys(site.path for site in factor.sites)
        ]
        covered = {place.number for place in self.open}
        self.open += [Place(None, n) for n in numbers.values() if n not in covered]

    def look(self, model: Trial, limit: float) -> bool:
        """Leaves out one parameter after the other; whether nothing is left to be seen."""
        self._drop_unused(model)
        self._look_at_slopes(model, limit)
        floor = min(limit, max(100 * model.rounding, 30 * model.unsteadiness()))
        for _ in range(NUM_ELEMENTS):
            element = random_element(self.symmetry, model.rng, None)
            self.open = [p for p in self.open if not self._shows(model, element, p, limit, floor)]
        return all(self._is_settled(place) for place in self.open)

    def verdict(self, limit: float) -> None:
        """Raises an error for the first factor or parameter that was not seen."""
        for place in (p for p in self.open if not self._is_settled(p)):
            path = self.symmetry.leaves[place.number].path
            if place.factor is not None and place.factor.name not in self.seen:
                raise SymmetryError(
                    f"not proved: the outputs do not see factor {place.factor.name!r}, nothing "
                    f"changes when it leaves out parameter {path!r}; pass inputs on which the "
                    "outputs depend on it, or outputs that do, such as scores instead of labels"
                )
            raise SymmetryError(
                f"not proved: the outputs hardly see parameter {path!r}, at most by "
                f"{place.change:.1g} (needed: {limit:.0e}), so a wrong group would not show there; "
                "pass inputs or outputs that depend on it more"
            )

    def _is_settled(self, place: Place) -> bool:
        """Whether a parameter that is not seen makes no difference, to a factor that is."""
        known = place.factor is None or place.factor.name in self.seen
        return known and place.looks >= ENOUGH

    def _drop_unused(self, model: Trial) -> None:
        inputs, wanted = model.program.inputs, set(map(id, model.program.outputs))
        used = {id(v) for e in model.program.equations for v in e.inputs} | wanted
        self.open = [
            place
            for place in self.open
            if place.factor is not None
            or (id(inputs[place.number]) in used and _can_move(model.leaves[place.number]))
        ]

    def _look_at_slopes(self, model: Trial, limit: float) -> None:
        """To first order all at once; what is seen so need not be left out to see it."""
        slopes = model.slopes(
            sorted({p.number for p in self.open if _can_move(model.leaves[p.number])})
        )
        if slopes is None:
            return
        element = random_element(self.symmetry, model.rng, None)
        left = []
        for place in self.open:
            before, slope = model.leaves[place.number], slopes.get(place.number)
            if slope is None:
                left.append(place)
                continue
            step = self._moved(model, element, place) - before
            change = abs(float(np.real(np.vdot(np.conj(slope), step))))
            if np.isfinite(change) and change > CLEAR * limit:
                self._see(place)
            else:
                left.append(place)
        self.open = left

    def _see(self, place: Place) -> None:
        if place.factor is not None:
            self.seen.add(place.factor.name)

    def _moved(self, model: Trial, element: Element, place: Place) -> np.ndarray:
        """A parameter moved by its factor; at random where it has none, or is not moved by it."""
        before = model.leaves[place.number]
        if place.factor is not None:
            leaf = self.symmetry.leaves[place.number]
            moved = act_on_leaf(self.symmetry, only(element, place.factor), before, leaf.blocks, np)
            if moved is not before and not np.array_equal(moved, before):
                return moved
        return before * np.exp(0.3 * model.rng.standard_normal(before.shape)).astype(before.dtype)

    def _shows(
        self, model: Trial, element: Element, place: Place, limit: float, floor: float
    ) -> bool:
        """Whether leaving one parameter out shows; if not, whether moving it alone does."""
        if not _can_move(model.leaves[place.number]):
            return False
        left_out, alone = self._probes(model, element, place)
        change = model.difference(left_out)
        if change > limit:
            self._see(place)
            return True
        place.change = max(place.change, change)
        place.looks += max(change, model.difference(alone) if alone else 0.0) <= floor
        return False

    def _probes(
        self, model: Trial, element: Element, place: Place
    ) -> tuple[list[Any], list[Any] | None]:
        """The parameters moved by a factor but for one; those of which one alone is moved."""
        alone = list(model.leaves)
        alone[place.number] = self._moved(model, element, place)
        if place.factor is None:
            return alone, None
        moved = self.symmetry.act_on_leaves(only(element, place.factor), model.leaves, np)
        if np.array_equal(moved[place.number], model.leaves[place.number]):
            return alone, None
        moved[place.number] = model.leaves[place.number]
        return moved, alone


def _can_move(leaf: Any) -> bool:
    return bool(jax.dtypes.issubdtype(leaf.dtype, np.inexact) and leaf.size)
