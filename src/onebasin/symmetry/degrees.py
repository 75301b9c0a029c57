"""The exponent pass: which powers of a scale, or which parity of a sign, every value carries.

Let a parameter's block be multiplied by exp(sum over S of c_S s_S[i_S]), one free array s_S per set
S of index sets. Then every value of the program carries linear forms in the unknown exponents
c, one for each S: products add them, sums ask for equality, a contraction over an index in S asks
that the total vanish. All of these are linear and separate by S, so the symmetries along S are the
null space of the equations collected for S: over the rationals for scalings, over two elements for
sign flips.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction

from onebasin.symmetry.axes import Atom
from onebasin.symmetry.blocks import MAX_BLOCKS, Key, Plan, Planner, Position
from onebasin.symmetry.liveness import Live
from onebasin.symmetry.nullspace import Row, add_multiple, null_space
from onebasin.symmetry.steps import (
    Join,
    Operation,
    Reshape,
    Result,
    Slice,
    Step,
    Unknown,
    Value,
)

Index = tuple[Atom, ...]
"""The index sets S that an exponent runs along, sorted by number."""

Form = Row
Degree = dict[frozenset[Position], Form] | None
"""Forms by the positions they run along; None fits anything (zeros)."""

LONG_FORM = 6
MANY_ATOMS = 6


@dataclasses.dataclass(frozen=True, slots=True)
class Spot:
    """Where an unknown exponent acts: a block of a part, along some of its positions."""

    part: int
    key: Key
    positions: frozenset[Position]


@dataclasses.dataclass(eq=False, slots=True)
class Table:
    """The degrees of all blocks of a value; `blocks` None stands for degree zero throughout."""

    blocks: dict[Key, Degree] | None = None
    wild: bool = False

    def at(self, key: Key) -> Degree:
        if self.wild:
            return None
        return {} if self.blocks is None else self.blocks[key]


class Exponents:
    """Collects the equations of one field: the rationals (scalings) or two elements (signs)."""

    def __init__(self, planner: Planner, live: Live, modulus: int | None):
        self.planner = planner
        self.live = live
        self.modulus = modulus
        self.tables: dict[int, Table] = {}
        self.sites: dict[int, Spot] = {}
        self.index_of: dict[int, Index] = {}
        self.equations: dict[Index, list[Form]] = {}
        self.seen: set[int] = set()
        self._solutions: dict[Index, list[Row]] | None = None
        self._count = 0

    def _new(self, index: Index) -> int:
        self._count += 1
        self.index_of[self._count] = index
        return self._count

    def _combine(self, forms: list[tuple[Form, Fraction | int]]) -> Form:
        total: Form = {}
        for form, weight in forms:
            factor = weight
            if self.modulus:
                factor = Fraction(weight).numerator
            total = add_multiple(total, form, factor, self.modulus)
        # What cancels here was used all the same.
        self.seen.update(name for form, _ in forms for name in form if name not in total)
        return total

    def _shorten(self, form: Form) -> Form:
        if len(form) <= LONG_FORM:
            return form
        index = self.index_of[next(iter(form))]
        name = self._new(index)
        self._require_zero(add_multiple(form, {name: 1}, -1, self.modulus))
        return {name: 1}

    def _require_zero(self, form: Form) -> None:
        if form:
            self.seen.update(form)
            self.equations.setdefault(self.index_of[next(iter(form))], []).append(form)

    def _require_all_zero(self, value: Value) -> None:
        table = self.table(value)
        for degree in (table.blocks or {}).values():
            for form in (degree or {}).values():
                self._require_zero(form)

    def _require_equal(self, degrees: list[Degree]) -> Degree:
        """All that is not wild must agree; the agreed degree, in the shortest words."""
        firm = [d for d in degrees if d is not None]
        if not firm:
            return None
        agreed = dict(firm[0])
        for other in firm[1:]:
            for positions in agreed.keys() | other.keys():
                mine, theirs = agreed.get(positions, {}), other.get(positions, {})
                if mine != theirs:
                    self._require_zero(add_multiple(mine, theirs, -1, self.modulus))
                    if len(theirs) < len(mine):
                        agreed[positions] = theirs
        return {p: form for p, form in agreed.items() if form}

    def table(self, value: Value) -> Table:
        found = self.tables.get(id(value))
        if found is None:
            wild = value.known is not None and self._fits_anything(value.known)
            found = self.tables[id(value)] = Table(wild=wild)
        return found

    def _fits_anything(self, known: float) -> bool:
        return known == 0 or math.isnan(known) or (self.modulus is None and math.isinf(known))

    def run(self, steps: list[Step]) -> None:
        handlers = {
            Operation: self._operation,
            Reshape: self._reshape,
            Join: self._join,
            Slice: self._slice,
            Unknown: self._unknown,
            Result: lambda step: self._require_all_zero(step.value),
        }
        for step in steps:
            handlers[type(step)](step)  # type: ignore[operator]

    def _unknown(self, step: Unknown) -> None:
        layout = self.planner.layout(step.value)
        if layout.count > MAX_BLOCKS:
            return
        blocks: dict[Key, Degree] = {}
        for key in layout.block_keys():
            if step.part is not None and not self.live(step.value, key):
                blocks[key] = {}
                continue
            atoms = layout.atoms(key)
            degree: dict[frozenset[Position], Form] = {}
            most = len(atoms) if len(atoms) <= MANY_ATOMS else 2
            for count in range(most + 1):
                for chosen in itertools.combinations(atoms, count):
                    index = sorted({atoms[p] for p in chosen}, key=lambda a: a.number)
                    if len(index) < count:
                        continue
                    name = self._new(tuple(index))
                    if step.part is not None:
                        self.sites[name] = Spot(step.part, key, frozenset(chosen))
                    degree[frozenset(chosen)] = {name: 1}
            blocks[key] = degree
        self.tables[id(step.value)] = Table(blocks)

    def _operation(self, step: Operation) -> None:
        effect = step.scale if self.modulus is None else step.sign
        tables = [self.table(o.value) for o in step.operands]
        firm = [(o, t) for o, t in zip(step.operands, tables, strict=True) if o.weight is not None]
        for operand in step.operands:
            if operand.weight is None or effect == "zero":
                self._require_all_zero(operand.value)
        wild = bool(firm) and (
            any(t.wild and o.weight > 0 for o, t in firm if o.weight is not None)
            if step.combine == "product"
            else all(t.wild for _, t in firm)
        )
        if effect == "zero" or all(t.blocks is None for _, t in firm):
            for output in step.outputs:
                self.tables[id(output.value)] = Table(wild=wild and effect == "keep")
            return
        plan = self.planner.operation(step)
        if plan.meetings is None:
            for operand, _ in firm:
                self._require_all_zero(operand.value)
            for output in step.outputs:
                self.tables[id(output.value)] = Table()
            return
        self._meet(step, plan, effect)

    def _meet(self, step: Operation, plan: Plan, effect: str) -> None:
        assert plan.meetings is not None
        collected: list[dict[Key, list[Degree]]] = [{} for _ in step.outputs]
        tables = [self.table(o.value) for o in step.operands]
        for meeting in plan.meetings:
            degrees: list[tuple[Degree, Fraction | int]] = []
            for operand, table, key, naming in zip(
                step.operands, tables, meeting.operands, plan.names, strict=True
            ):
                if operand.weight is None:
                    continue
                degree = table.at(key)
                if degree is not None:
                    degree = {
                        frozenset((naming[axis], k) for axis, k in positions): form
                        for positions, form in degree.items()
                    }
                degrees.append((degree, operand.weight))
            total = self._close(self._total(step.combine, degrees), step.closed)
            for found, key in zip(collected, meeting.outputs, strict=True):
                found.setdefault(key, []).append(total)
        for output, found, naming in zip(step.outputs, collected, plan.output_names, strict=True):
            back = {joint: own for own, joint in naming.items() if joint is not None}
            blocks: dict[Key, Degree] = {}
            for key, several in found.items():
                agreed = self._require_equal(several)
                if effect == "clear":
                    self.seen.update(u for form in (agreed or {}).values() for u in form)
                    agreed = {}
                if agreed is not None:
                    agreed = {
                        frozenset((back[axis], k) for axis, k in positions): self._shorten(form)
                        for positions, form in agreed.items()
                    }
                blocks[key] = agreed
            plain = all(degree == {} for degree in blocks.values())
            self.tables[id(output.value)] = Table(None if plain else blocks)

    def _total(self, combine: str, degrees: list[tuple[Degree, Fraction | int]]) -> Degree:
        if combine == "equal":
            return self._require_equal([degree for degree, _ in degrees])
        # Zero to a positive power is zero; to the power zero it is one.
        if any(degree is None and weight > 0 for degree, weight in degrees):
            return None
        together: dict[frozenset[Position], list[tuple[Form, Fraction | int]]] = {}
        for degree, weight in degrees:
            for positions, form in (degree or {}).items():
                together.setdefault(positions, []).append((form, weight))
        total = {positions: self._combine(forms) for positions, forms in together.items()}
        return {positions: form for positions, form in total.items() if form}

    def _close(self, degree: Degree, closed: frozenset) -> Degree:
        if degree is None:
            return None
        open_forms = {}
        for positions, form in degree.items():
            if any(axis in closed for axis, _ in positions):
                self._require_zero(form)
            else:
                open_forms[positions] = form
        return open_forms

    def _give_up(self, sources: list[Value], target: Value) -> None:
        for source in sources:
            self._require_all_zero(source)
        self.tables[id(target)] = Table()

    def _simple(self, sources: list[Value], target: Value) -> bool:
        tables = [self.table(source) for source in sources]
        if any(t.blocks is not None for t in tables):
            return False
        if any(t.wild for t in tables) and not all(t.wild for t in tables):
            return False
        self.tables[id(target)] = Table(wild=all(t.wild for t in tables))
        return True

    def _reshape(self, step: Reshape) -> None:
        if self._simple([step.source], step.target):
            return
        plan = self.planner.reshape(step)
        if plan.meetings is None:
            self._give_up([step.source], step.target)
            return
        table = self.table(step.source)
        blocks: dict[Key, Degree] = {}
        assert plan.relabel is not None
        for meeting, relabel in zip(plan.meetings, plan.relabel, strict=True):
            degree = table.at(meeting.operands[0])
            if degree is not None:
                degree = {
                    frozenset(relabel[p] for p in positions): form
                    for positions, form in degree.items()
                }
            blocks[meeting.outputs[0]] = degree
        self.tables[id(step.target)] = Table(blocks)

    def _join(self, step: Join) -> None:
        sources = [source for source in step.sources if source is not None]
        if step.filling is not None:
            sources.append(step.filling)
        if self._simple(sources, step.target):
            return
        rows = self.planner.join(step)
        if rows is None:
            self._give_up(sources, step.target)
            return
        blocks: dict[Key, list[Degree]] = {}
        for number, key, target in rows:
            source = step.filling if number is None else step.sources[number]
            assert source is not None
            blocks.setdefault(target, []).append(self.table(source).at(key))
        self.tables[id(step.target)] = Table(
            {target: self._require_equal(found) for target, found in blocks.items()}
        )

    def _slice(self, step: Slice) -> None:
        if self._simple([step.source], step.target):
            return
        pairs = self.planner.slice(step)
        if pairs is None:
            self._give_up([step.source], step.target)
            return
        table = self.table(step.source)
        self.tables[id(step.target)] = Table({target: table.at(own) for own, target in pairs})

    def solutions(self) -> dict[Index, list[Row]]:
        """For each S the exponent vectors that span all solutions, as {spot: exponent}."""
        if self._solutions is None:
            self._solutions = self._solve()
        return self._solutions

    def _solve(self) -> dict[Index, list[Row]]:
        by_index: dict[Index, list[int]] = {}
        for name in self.sites:
            if name in self.seen:
                by_index.setdefault(self.index_of[name], []).append(name)
        found: dict[Index, list[Row]] = {}
        for index, names in by_index.items():
            rows = self.equations.get(index, [])
            basis = null_space(rows, names, self.modulus)
            if basis:
                found[index] = [
                    {self.sites[name]: value for name, value in vector.items()} for vector in basis
                ]
        return found
