"""Numbers of README and documentation, written from `results/` and nowhere else.

A page holds blocks `<!-- numbers: RUN STAGE TABLE [ROW | ROW ...] -->` to `<!-- end -->`; what
stands between is the table of that run; `<!-- our numbers: ... -->` leaves out what was published,
where that is not of the same thing. In a sentence, a number with `<!--= RUN STAGE TABLE :: ROW
:: KEY -->` behind it is one cell of such a table, with as many digits as stand there. `<!-- speed
-->` is the table of the benchmarks. `python docs/page_numbers.py` writes them all, `--check` says
whether they are right.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import sys

import speed_numbers  # type: ignore[import-not-found]

from onebasin.studies import Cell, Column, Row, Table, sections

ROOT = pathlib.Path(__file__).parent.parent
PAGES = ("README.md", "docs/studies.md", "docs/results.md", "docs/speed.md")
BLOCK = re.compile(
    r"(<!-- (our )?numbers: (\S+) (\S+) (\S+)(?: ([^\n]*?))? -->\n).*?(<!-- end -->)", re.S
)
CELL = re.compile(r"-?\d+(?:\.(\d+))?( %)?(<!--= (\S+) (\S+) (\S+) :: (.+?) :: (.+?) -->)")
SPEED = re.compile(r"(<!-- speed -->\n).*?(<!-- end -->)", re.S)


def shown(cell: Cell | None, column: Column, published: bool = True) -> str:
    """A cell as text: our number, its interval, the published one."""
    if cell is None or cell.value is None:
        return ""
    text = f"{cell.value:.{column.digits}f}"
    if cell.low is not None and cell.high is not None:
        text += f" [{cell.low:.{column.digits}f}, {cell.high:.{column.digits}f}]"
    if published and cell.published is not None:
        text += f" (published {cell.published:.{column.digits}f})"
    return text


def labelled(rows: list[Row]) -> dict[str, Row]:
    """Rows by their labels, with the group where labels alone do not tell them apart."""
    unique = len({row.label for row in rows}) == len(rows)
    return {row.label if unique else f"{row.label}, {row.group}": row for row in rows}


def markdown(table: Table, labels: list[str] | None = None, published: bool = True) -> str:
    """A table in Markdown: all rows, or the named ones in their order."""
    rows: list[Row] = list(table.rows)
    if labels:
        by_label = {row.label: row for row in rows}
        rows = [by_label[label] for label in labels]
    lines = [
        "| | " + " | ".join(column.label for column in table.columns) + " |",
        "|---|" + "---|" * len(table.columns),
    ]
    for label, row in labelled(rows).items():
        cells = [shown(row.cells.get(column.key), column, published) for column in table.columns]
        shown_label = f"**{label}**" if row.emphasis else label
        lines.append(f"| {shown_label} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def renewed(text: str) -> str:
    """A page with all of its blocks written anew."""

    def block(match: re.Match[str]) -> str:
        head, ours, run, stage, name, rows, tail = match.groups()
        table = sections(ROOT / "results" / run)[stage].table(name)
        labels = [label.strip() for label in rows.split("|")] if rows else None
        return f"{head}{markdown(table, labels, not ours)}{tail}"

    def cell(match: re.Match[str]) -> str:
        digits, percent, mark, run, stage, name, label, key = match.groups()
        rows = labelled(list(sections(ROOT / "results" / run)[stage].table(name).rows))
        value = rows[label].cells[key].value
        if value is None:
            raise ValueError(f"{mark}: there is no number")
        return f"{value:.{len(digits or '')}f}{percent or ''}{mark}"

    text = CELL.sub(cell, text)
    text = SPEED.sub(lambda match: match[1] + speed_numbers.table() + match[2], text)
    return BLOCK.sub(block, text)


def main() -> int:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail if stale")
    check = parser.parse_args().check
    stale = []
    for name in PAGES:
        page = ROOT / name
        if not page.exists():
            continue
        text = page.read_text(encoding="utf-8")
        new = renewed(text)
        if new != text:
            stale.append(name)
            if not check:
                page.write_text(new, encoding="utf-8")
    if stale:
        print(("stale: " if check else "written: ") + ", ".join(stale))
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
