"""Tables as the page shows them: of one run, or of several side by side with their difference."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Sequence

from onebasin.report.numbers import interval, number
from onebasin.studies import Cell, Column, Table

EMPTY = "–"


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
    """Columns under one heading: those of a run, their differences, or what was published."""

    title: str
    heads: list[HeadView]

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
    def published(self) -> bool:
        """Whether numbers stand beside published ones within a column."""
        return any("published" in head.parts for head in self.heads if len(head.parts) > 1)

    @property
    def width(self) -> int:
        """Cells of a row, without its label."""
        return sum(block.span for block in self.blocks)


class _Notes:
    """Notes under a table, marked a, b, c."""

    def __init__(self) -> None:
        self._marks: dict[str, str] = {}

    def mark(self, *texts: str) -> str:
        marks = []
        for text in texts:
            if text:
                count = len(self._marks)
                letter = chr(ord("a") + count % 26) * (1 + count // 26)
                marks.append(self._marks.setdefault(text, letter))
        return ",".join(marks)

    def listed(self) -> list[tuple[str, str]]:
        return [(mark, text) for text, mark in self._marks.items()]


def one(table: Table, id: str, run: str = "") -> TableView:
    """A table of one run; published numbers stand beside ours."""
    notes = _Notes()
    block = BlockView("", _heads(table, [table], notes, published=True))
    best = _best(table)
    rows: dict[str, list[RowView]] = {}
    for row in table.rows:
        cells: list[CellView] = []
        for column, head in zip(table.columns, block.heads, strict=True):
            cell = row.cells.get(column.key)
            cells += _cells(column, cell, head.parts, cell is not None and cell in best, notes)
        rows.setdefault(row.group, []).append(RowView(row.label, row.emphasis, cells))
    view = TableView(
        id, table.title, table.text, [block], list(rows.items()), notes.listed(), table.to_csv(), []
    )
    view.legend = _legend(table, bool(best), [view])
    view.run = run
    return _indexed(view)


def compared(tables: Sequence[tuple[str, Table]], id: str) -> TableView:
    """The same table of several runs: a block of columns for each, then the differences.

    Args:
        tables: Names of runs and their tables; differences are to the first.
        id: The table's name on the page.
    """
    notes = _Notes()
    first = tables[0][1]
    shown = [table for _, table in tables]
    columns = list({c.key: c for table in shown for c in table.columns}.values())
    merged = first.model_copy(update={"columns": columns})
    blocks = [BlockView(name, _heads(merged, [table], notes)) for name, table in tables]
    for name, _ in tables[1:]:
        title = f"{name} − {tables[0][0]}"
        blocks.append(BlockView(title, _heads(merged, [], notes, ["difference"])))
    printed = [c for c in columns if any(_has(table, c.key, "published") for table in shown)]
    if printed:
        heads = _heads(first.model_copy(update={"columns": printed}), [], notes, ["published"])
        blocks.append(BlockView("published", heads))
    best = [_best(table) for table in shown]
    rows: dict[str, list[RowView]] = {}
    for group, label in dict.fromkeys((r.group, r.label) for table in shown for r in table.rows):
        found = [_row(table, group, label) for table in shown]
        cells: list[CellView] = []
        for block, row, top in zip(blocks, found, best, strict=False):
            for column, head in zip(columns, block.heads, strict=True):
                cell = row.get(column.key)
                cells += _cells(column, cell, head.parts, cell is not None and cell in top, notes)
        for row in found[1:]:
            cells += [_difference(c, found[0].get(c.key), row.get(c.key)) for c in columns]
        for column in printed:
            values = [row[column.key].published for row in found if column.key in row]
            value = next((v for v in values if v is not None), None)
            text = number(value, column.digits) if value is not None else ""
            cells.append(CellView(text, "published", value))
        emphasis = any(r.emphasis for t in shown for r in t.rows if (r.group, r.label) == (group, label))
        rows.setdefault(group, []).append(RowView(label, emphasis, cells))
    view = TableView(
        id, first.title, first.text, blocks, list(rows.items()), notes.listed(),
        _compared_csv(tables, columns), [],
    )
    view.legend = _legend(merged, any(best), [view])
    return _indexed(view)


def _indexed(view: TableView) -> TableView:
    place = 0
    for head in view.heads:
        head.index = place
        place += len(head.parts)
    return view


def _heads(
    table: Table,
    shown: Sequence[Table],
    notes: _Notes,
    parts: list[str] | None = None,
    published: bool = False,
) -> list[HeadView]:
    heads = []
    for column in table.columns:
        used = parts or ["value"]
        if parts is None and any(_has(t, column.key, "low") for t in shown):
            used = [*used, "interval"]
        if published and any(_has(t, column.key, "published") for t in shown):
            used = [*used, "published"]
        mark = notes.mark(column.note)
        heads.append(HeadView(column.label, used, column.better or "", mark))
    return heads


def _has(table: Table, key: str, part: str) -> bool:
    cells = (row.cells[key] for row in table.rows if key in row.cells)
    return any(getattr(cell, part) is not None for cell in cells)


def _row(table: Table, group: str, label: str) -> dict[str, Cell]:
    rows = (row.cells for row in table.rows if (row.group, row.label) == (group, label))
    return next(rows, {})


def _cells(
    column: Column, cell: Cell | None, parts: list[str], best: bool, notes: _Notes
) -> list[CellView]:
    value = cell.value if cell else None
    mark = notes.mark(cell.note) if cell else ""
    text = number(value, column.digits) if cell else ""
    found = [CellView(text, "value", value, best, mark)]
    if "interval" in parts:
        found.append(CellView(interval(cell, column.digits), "interval"))
    if "published" in parts:
        known = cell.published if cell else None
        text = number(known, column.digits) if known is not None else ""
        found.append(CellView(text, "published", known))
    return found


def _difference(column: Column, old: Cell | None, new: Cell | None) -> CellView:
    if old is None or new is None or old.value is None or new.value is None:
        return CellView("", "difference")
    change = new.value - old.value
    return CellView(
        number(change, column.digits, sign=True), "difference", change, _apart(old, new)
    )


def _apart(old: Cell, new: Cell) -> bool:
    """Whether the intervals of two numbers do not meet."""
    if old.low is None or old.high is None or new.low is None or new.high is None:
        return False
    return old.high < new.low or new.high < old.low


class _Best(list[Cell]):
    """Cells by identity: two rows may hold equal ones of different columns."""

    def __contains__(self, cell: object) -> bool:
        return any(cell is one for one in self)


def _best(table: Table) -> _Best:
    """The best cells of every column that says which way is better, ties included."""
    found = _Best()
    for column in table.columns:
        cells = [row.cells[column.key] for row in table.rows if column.key in row.cells]
        known = [(c.value, c) for c in cells if c.value is not None]
        if column.better is None or len(known) < 2:
            continue
        pick = max if column.better == "higher" else min
        top = number(pick(value for value, _ in known), column.digits)
        found += [cell for value, cell in known if number(value, column.digits) == top]
    return found


def _legend(table: Table, best: bool, views: Sequence[TableView]) -> list[str]:
    """What the marks in a table mean."""
    kinds = {part for view in views for head in view.heads for part in head.parts}
    lines = []
    if best:
        lines.append("Bold: the best of its column.")
    if "interval" in kinds:
        lines.append("In brackets: the interval of the number before it.")
    if "difference" in kinds and "interval" in kinds:
        lines.append("A bold difference: the intervals of both runs do not meet.")
    return lines


def _compared_csv(tables: Sequence[tuple[str, Table]], columns: Sequence[Column]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [name for name, _ in tables]
    head = [f"{name}: {c.key}" for name in names for c in columns]
    head += [f"{name} - {names[0]}: {c.key}" for name in names[1:] for c in columns]
    writer.writerow(["group", "row", *head])
    keys = dict.fromkeys((r.group, r.label) for _, table in tables for r in table.rows)
    for group, label in keys:
        values = [
            [cells[c.key].value if c.key in cells else None for c in columns]
            for cells in (_row(table, group, label) for _, table in tables)
        ]
        changes = [
            None if a is None or b is None else b - a
            for later in values[1:]
            for a, b in zip(values[0], later, strict=True)
        ]
        flat = [value for row in values for value in row] + changes
        writer.writerow([group, label, *("" if v is None else v for v in flat)])
    return text.getvalue()
