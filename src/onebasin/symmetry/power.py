"""Whether a proof could have failed: what the outputs see of each factor and of each parameter."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from onebasin.symmetry.elements import Element, act_on_leaf
from onebasin.symmetry.errors import SymmetryError
from onebasin.symmetry.group import Factor, Symmetry
from onebasin.symmetry.probes import only, random_element
from onebasin.symmetry.trial import Trial

# A slope is a change that is not made yet; it has to be clear.
CLEAR = 10
# What is invisible to the last bit at as many parameters makes no difference at any.
ENOUGH = 3


@dataclasses.dataclass(slots=True)
class Place:
    """A parameter that a factor moves, or (None) that is moved by none.

    Attributes:
        factor: The factor.
        number: Which leaf the parameter is.
        change: The largest that leaving it out made so far.
        looks: At how many choices of parameters it was invisible to the last bit.
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
        model.stay()
        self._drop_unused(model)
        self._look_at_slopes(model, limit)
        floor = min(limit, max(100 * model.rounding, 30 * model.unsteadiness()))
        element = random_element(self.symmetry, model.rng, None)
        self._keep_unless(lambda place: self._shows(model, element, place, limit, floor))
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
            if _can_move(model.leaves[place.number])
            and (place.factor is not None or id(inputs[place.number]) in used)
        ]

    def _look_at_slopes(self, model: Trial, limit: float) -> None:
        """To first order all at once; what is seen so need not be left out to see it."""
        slopes = model.slopes(sorted({place.number for place in self.open}))
        if slopes is None:
            return
        element = random_element(self.symmetry, model.rng, None)

        def is_clear(place: Place) -> bool:
            before, moved = model.leaves[place.number], self._by_factor(model, element, place)
            step = (_shaken(before, True, model.rng) if moved is None else moved) - before
            change = abs(float(np.real(np.vdot(np.conj(slopes[place.number]), step))))
            return bool(np.isfinite(change) and change > CLEAR * limit)

        self._keep_unless(is_clear)

    def _keep_unless(self, is_seen: Callable[[Place], bool]) -> None:
        left = []
        for place in self.open:
            if not is_seen(place):
                left.append(place)
            elif place.factor is not None:
                self.seen.add(place.factor.name)
        self.open = left

    def _by_factor(self, model: Trial, element: Element, place: Place) -> np.ndarray | None:
        """A parameter moved by its factor; None if it is not moved."""
        if place.factor is None:
            return None
        before, leaf = model.leaves[place.number], self.symmetry.leaves[place.number]
        moved = act_on_leaf(self.symmetry, only(element, place.factor), before, leaf.blocks, np)
        return None if moved is before or np.array_equal(moved, before) else moved

    def _shows(
        self, model: Trial, element: Element, place: Place, limit: float, floor: float
    ) -> bool:
        """Whether leaving one parameter out shows.

        Where neither that nor moving it alone does, the factor may move it in a way that makes no
        difference, such as rescaling what is normalised: then any other way has to show.
        """
        before, moved = model.leaves[place.number], self._by_factor(model, element, place)
        left_out = alone = 0.0
        if moved is not None and place.factor is not None:
            left_out = model.difference(model.moved(element, place.factor, place.number))
            if left_out > limit:
                return True
            alone = self._change(model, place, moved)
        chosen = True if moved is None else moved != before
        any_way = self._change(model, place, _shaken(before, chosen, model.rng))
        place.change = max(place.change, left_out, any_way if alone <= limit else 0.0)
        place.looks += max(alone, any_way) <= floor
        return alone <= limit < any_way

    def _change(self, model: Trial, place: Place, value: np.ndarray) -> float:
        leaves = list(model.leaves)
        leaves[place.number] = value
        return model.difference(leaves)


def _shaken(values: np.ndarray, chosen: Any, rng: np.random.Generator) -> np.ndarray:
    """Some of the values at random, no other ones."""
    noise = np.exp(0.3 * rng.standard_normal(values.shape)).astype(values.dtype)
    return np.where(chosen, values * noise, values)


def _can_move(leaf: Any) -> bool:
    return bool(jax.dtypes.issubdtype(leaf.dtype, np.inexact) and leaf.size)
