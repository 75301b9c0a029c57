"""Tables of one run as the page shows them; the parts are those of compared tables too."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from onebasin.report.numbers import interval, number
from onebasin.studies import Cell, Column, Table


@dataclasses.dataclass
class CellView:
    """One cell of the page: its text, what it sorts by, and the marks of its notes."""

    text: str
    kind: str
    sort: float | None = None
    best: bool = False
    marks: str = ""


@dataclasses.dataclass
class HeadView:
    """One column's head, over the cells of its parts."""

    label: str
    parts: list[str]
    better: str = ""
    marks: str = ""
    index: int = 0


@dataclasses.dataclass
class BlockView:
    """Columns under one heading: a number of each run, their differences, what was published."""

    title: str
    heads: list[HeadView]
    better: str = ""
    marks: str = ""

    @property
    def span(self) -> int:
        """Cells of a row under it."""
        return sum(len(head.parts) for head in self.heads)


@dataclasses.dataclass
class RowView:
    """One row."""

    label: str
    emphasis: bool
    cells: list[CellView]


@dataclasses.dataclass
class TableView:
    """A table, ready for the page."""

    id: str
    title: str
    text: str
    blocks: list[BlockView]
    groups: list[tuple[str, list[RowView]]]
    notes: list[tuple[str, str]]
    csv: str
    legend: list[str]
    kind: str = "table"
    run: str = ""

    @property
    def heads(self) -> list[HeadView]:
        """All columns."""
        return [head for block in self.blocks for head in block.heads]

    @property
    def compared(self) -> bool:
        """Whether it is of several runs: columns have a heading in common then."""
        return any(block.title for block in self.blocks)

    @property
    def published(self) -> bool:
        """Whether numbers stand beside published ones within a column."""
        return any("published" in head.parts for head in self.heads if len(head.parts) > 1)

    @property
    def width(self) -> int:
        """Cells of a row, without its label."""
        return sum(block.span for block in self.blocks)


class Notes:
    """Notes under a table, marked a, b, c."""

    def __init__(self) -> None:
        self._marks: dict[str, str] = {}

    def mark(self, text: str) -> str:
        """The mark of a note, which is added where it is new."""
        if not text:
            return ""
        count = len(self._marks)
        letter = chr(ord("a") + count % 26) * (1 + count // 26)
        return self._marks.setdefault(text, letter)

    def listed(self) -> list[tuple[str, str]]:
        """All marks with their notes."""
        return [(mark, text) for text, mark in self._marks.items()]


def one(table: Table, id: str, run: str = "") -> TableView:
    """A table of one run; published numbers stand beside ours."""
    notes = Notes()
    heads = []
    for column in table.columns:
        parts = ["value"]
        parts += ["interval"] if has(table, column.key, "low") else []
        parts += ["published"] if has(table, column.key, "published") else []
        heads.append(HeadView(column.label, parts, column.better or "", notes.mark(column.note)))
    top = best(table)
    rows: dict[str, list[RowView]] = {}
    for row in table.rows:
        made: list[CellView] = []
        for column, head in zip(table.columns, heads, strict=True):
            cell = row.cells.get(column.key)
            made += cells(column, cell, head.parts, id_of(cell) in top, notes)
        rows.setdefault(row.group, []).append(RowView(row.label, row.emphasis, made))
    return TableView(
        id=id,
        title=table.title,
        text=table.text,
        blocks=[BlockView("", indexed(heads))],
        groups=list(rows.items()),
        notes=notes.listed(),
        csv=table.to_csv(),
        legend=legend(bool(top), heads),
        run=run,
    )


def indexed(heads: list[HeadView]) -> list[HeadView]:
    """Heads that know which cell of a row is their first."""
    place = 0
    for head in heads:
        head.index = place
        place += len(head.parts)
    return heads


def has(table: Table, key: str, part: str) -> bool:
    """Whether any cell of a column has an interval, or a published number."""
    found = (row.cells[key] for row in table.rows if key in row.cells)
    return any(getattr(cell, part) is not None for cell in found)


def cells(
    column: Column, cell: Cell | None, parts: list[str], is_best: bool, notes: Notes
) -> list[CellView]:
    """What the page shows of a cell, one part after the other."""
    value = cell.value if cell else None
    mark = notes.mark(cell.note) if cell else ""
    text = number(value, column.digits) if cell else ""
    found = [CellView(text, "value", value, is_best, mark)]
    if "interval" in parts:
        found.append(CellView(interval(cell, column.digits), "interval"))
    if "published" in parts:
        found.append(published(column, cell.published if cell else None))
    return found


def published(column: Column, value: float | None) -> CellView:
    """A published number."""
    text = number(value, column.digits) if value is not None else ""
    return CellView(text, "published", value)


def id_of(cell: Cell | None) -> int:
    """What tells a cell from an equal one in another column."""
    return id(cell)


def best(table: Table) -> set[int]:
    """The best cells of every column that says which way is better, ties included."""
    found: set[int] = set()
    for column in table.columns:
        own = [row.cells[column.key] for row in table.rows if column.key in row.cells]
        known = [(cell.value, cell) for cell in own if cell.value is not None]
        if column.better is None or len(known) < 2:
            continue
        pick = max if column.better == "higher" else min
        top = number(pick(value for value, _ in known), column.digits)
        found |= {id_of(cell) for value, cell in known if number(value, column.digits) == top}
    return found


def legend(any_best: bool, heads: Sequence[HeadView]) -> list[str]:
    """What the marks in a table mean."""
    kinds = {part for head in heads for part in head.parts}
    lines = []
    if any_best:
        lines.append("Bold: the best of its column.")
    if "interval" in kinds:
        lines.append("In brackets: the interval of the number before it.")
    if "difference" in kinds and "interval" in kinds:
        lines.append("A bold difference: the intervals of both runs do not meet.")
    return lines
