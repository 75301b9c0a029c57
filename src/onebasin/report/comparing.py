"""The same table of several runs: their numbers side by side, then the difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onebasin.report import tables
from onebasin.report.numbers import MINUS, number
from onebasin.report.tables import BlockView, CellView, HeadView, RowView, TableView
from onebasin.studies import Cell, Column, Table
from onebasin.studies.sheets import to_text


def compared(shown: Sequence[tuple[str, Table]], id: str) -> TableView:
    """One block of columns per number: a column for each run, then the difference.

    Args:
        shown: Names of runs and their tables; differences are to the first.
        id: The table's name on the page.
    """
    first = shown[0][1]
    found = [table for _, table in shown]
    columns = list({c.key: c for table in found for c in table.columns}.values())
    notes = tables.Notes()
    blocks = [_block(column, shown, notes) for column in columns]
    tops = [tables.best(table) for table in found]
    rows: dict[str, list[RowView]] = {}
    for group, label in _labels(found):
        own = [_row(table, group, label) for table in found]
        made: list[CellView] = []
        for column, block in zip(columns, blocks, strict=True):
            picked = [row.get(column.key) for row in own]
            for cell, head, top in zip(picked, block.heads, tops, strict=False):
                made += tables.cells(column, cell, head.parts, tables.id_of(cell) in top, notes)
            made += [_difference(column, picked[0], cell) for cell in picked[1:]]
            if block.heads[-1].parts == ["published"]:
                values = [c.published for c in picked if c and c.published is not None]
                made.append(tables.published(column, values[0] if values else None))
        emphasis = any(
            row.emphasis
            for t in found
            for row in t.rows
            if (row.group, row.label) == (group, label)
        )
        rows.setdefault(group, []).append(RowView(label, emphasis, made))
    heads = tables.indexed([head for block in blocks for head in block.heads])
    return TableView(
        id=id,
        title=first.title,
        text=first.text,
        blocks=blocks,
        groups=list(rows.items()),
        notes=notes.listed(),
        csv=to_csv(shown, columns),
        legend=tables.legend(any(tops), heads),
    )


def to_csv(shown: Sequence[tuple[str, Table]], columns: Sequence[Column]) -> str:
    """The numbers of all runs and their differences as text."""
    names = [name for name, _ in shown]
    head = [f"{name}: {c.key}" for name in names for c in columns]
    head += [f"{name} - {names[0]}: {c.key}" for name in names[1:] for c in columns]
    rows: list[list[Any]] = [["group", "row", *head]]
    found = [table for _, table in shown]
    for group, label in _labels(found):
        values = [
            [cells[c.key].value if c.key in cells else None for c in columns]
            for cells in (_row(table, group, label) for table in found)
        ]
        changes = [
            None if a is None or b is None else b - a
            for later in values[1:]
            for a, b in zip(values[0], later, strict=True)
        ]
        flat = [value for row in values for value in row] + changes
        rows.append([group, label, *flat])
    return to_text(rows)


def _block(column: Column, shown: Sequence[tuple[str, Table]], notes: tables.Notes) -> BlockView:
    better = column.better or ""
    heads = []
    for name, table in shown:
        parts = ["value", "interval"] if tables.has(table, column.key, "low") else ["value"]
        heads.append(HeadView(name, parts, better))
    for name, _ in shown[1:]:
        label = "difference" if len(shown) == 2 else f"{name} {MINUS} {shown[0][0]}"
        heads.append(HeadView(label, ["difference"], better))
    if any(tables.has(table, column.key, "published") for _, table in shown):
        heads.append(HeadView("published", ["published"], better))
    return BlockView(column.label, heads, better, notes.mark(column.note))


def _labels(found: Sequence[Table]) -> list[tuple[str, str]]:
    """Every row of any run, those of one group together."""
    every = dict.fromkeys((row.group, row.label) for table in found for row in table.rows)
    groups = list(dict.fromkeys(group for group, _ in every))
    return sorted(every, key=lambda name: groups.index(name[0]))


def _row(table: Table, group: str, label: str) -> dict[str, Cell]:
    rows = (row.cells for row in table.rows if (row.group, row.label) == (group, label))
    return next(rows, {})


def _difference(column: Column, old: Cell | None, new: Cell | None) -> CellView:
    if old is None or new is None or old.value is None or new.value is None:
        return CellView("", "difference")
    change = new.value - old.value
    text = number(change, column.digits, sign=True)
    return CellView(text, "difference", change, _apart(old, new))


def _apart(old: Cell, new: Cell) -> bool:
    """Whether the intervals of two numbers do not meet."""
    if old.low is None or old.high is None or new.low is None or new.high is None:
        return False
    return old.high < new.low or new.high < old.low
