"""Which blocks of which values the model's output depends on.

A slice may leave part of a parameter unread. What the output does not see can be changed at will;
that is no symmetry worth the name, so later passes look at live blocks only.
"""

from __future__ import annotations

from onebasin.symmetry.blocks import Key, Planner
from onebasin.symmetry.steps import Join, Operation, Reshape, Result, Slice, Step, Value


class Live:
    """Live blocks by value, found by walking the steps backwards from the results."""

    def __init__(self, steps: list[Step], planner: Planner):
        self._planner = planner
        self._whole: set[int] = set()
        self._keys: dict[int, set[Key]] = {}
        for step in reversed(steps):
            if isinstance(step, Result):
                self._mark(step.value)
            elif isinstance(step, Operation):
                self._operation(step)
            elif isinstance(step, Reshape):
                self._reshape(step)
            elif isinstance(step, Join):
                self._join(step)
            elif isinstance(step, Slice):
                self._slice(step)

    def __call__(self, value: Value, key: Key) -> bool:
        return id(value) in self._whole or key in self._keys.get(id(value), ())

    def any(self, value: Value) -> bool:
        return id(value) in self._whole or id(value) in self._keys

    def _mark(self, value: Value, key: Key | None = None) -> None:
        if key is None:
            self._whole.add(id(value))
        else:
            self._keys.setdefault(id(value), set()).add(key)

    def _operation(self, step: Operation) -> None:
        # An operation without outputs links a loop's state to itself: it is read whole.
        if step.outputs and not any(self.any(o.value) for o in step.outputs):
            return
        plan = self._planner.operation(step)
        if plan.meetings is None or not step.outputs:
            for operand in step.operands:
                self._mark(operand.value)
            return
        for meeting in plan.meetings:
            if any(
                self(o.value, key) for o, key in zip(step.outputs, meeting.outputs, strict=True)
            ):
                for operand, key in zip(step.operands, meeting.operands, strict=True):
                    self._mark(operand.value, key)

    def _reshape(self, step: Reshape) -> None:
        if not self.any(step.target):
            return
        plan = self._planner.reshape(step)
        if plan.meetings is None:
            self._mark(step.source)
            return
        for meeting in plan.meetings:
            if self(step.target, meeting.outputs[0]):
                self._mark(step.source, meeting.operands[0])

    def _join(self, step: Join) -> None:
        if not self.any(step.target):
            return
        rows = self._planner.join(step)
        if rows is None:
            for source in (*step.sources, step.filling):
                if source is not None:
                    self._mark(source)
            return
        for number, key, target in rows:
            source = step.filling if number is None else step.sources[number]
            if source is not None and self(step.target, target):
                self._mark(source, key)

    def _slice(self, step: Slice) -> None:
        if not self.any(step.target):
            return
        pairs = self._planner.slice(step)
        if pairs is None:
            self._mark(step.source)
            return
        for own, target in pairs:
            if self(step.target, target):
                self._mark(step.source, own)
