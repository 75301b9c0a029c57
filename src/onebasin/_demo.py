"""The demo: the compact posterior of a network on digits, from HMC to the report."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from onebasin import _picture, report, studies
from onebasin.studies.compact.study import setting
from onebasin.symmetry import check_symmetry

# Without this, Rich wraps and colours what is meant as it is.
PLAIN: Any = {"markup": False, "highlight": False, "soft_wrap": True}
GAUSSIAN = "one Gaussian, distilled"


def run(out: Path, seed: int, console: Console, say: Callable[[str], None]) -> None:
    """Run the study of the compact posterior at its smallest size, and say what it found.

    Args:
        out: The folder of the run; what is done there already is kept.
        seed: Seed of all random numbers.
        console: Where results are printed.
        say: Called with a sentence at each stage.
    """
    study = studies.get("compact")
    config = studies.load_config(study.config, "compact", "demo", overrides={"seed": seed})
    place = setting(config)
    symmetry = place.symmetry
    change = check_symmetry(symmetry, place.net.apply, place.params(), place.train[0][:2])
    console.print(str(symmetry), **PLAIN)
    console.print(
        f"Verified: random elements change the outputs by {change:.0e} of the largest.", **PLAIN
    )
    study.run(config, out, progress=console.is_terminal, say=say)
    _picture.draw(out / "one_basin.png")
    page = report.build([out])
    found = studies.sections(out)
    agreement = found["agreement"].table("agreement")
    judged = found["left-out"].table("left-out")
    for table in (agreement, judged):
        console.print(rendered(table))
    console.print(sentence(agreement, judged), **PLAIN)
    console.print(f"Report: {page}", **PLAIN)


def sentence(agreement: studies.Table, judged: studies.Table) -> str:
    """What the removal of symmetry changed, and how that compares with HMC's own floor."""

    def share(row: str) -> str:
        return f"{100 * agreement.cell(row, 'agreement').value:.1f} %"

    def judged_share(row: str) -> str:
        return f"{100 * judged.cell(row, 'agreement').value:.1f} %"

    return (
        f"As drawn, one Gaussian gives HMC's answer on {share('HMC, one Gaussian, unaligned')} of "
        f"the test inputs; in one basin, its spread tempered, on "
        f"{share('HMC, moments (tempered)')}; distilled, on {share('HMC, distilled')} (all in "
        "sample). Judged by chains of HMC that were left out, the distilled Gaussian agrees on "
        f"{judged_share(GAUSSIAN)}, the remaining chains on {judged_share('remaining chains')}, "
        f"and its total variation is {judged.cell(GAUSSIAN, 'ratio').value:.2f} times theirs."
    )


def rendered(table: studies.Table) -> Table:
    """A table of a study for the terminal."""
    shown = Table(title=table.title, caption=table.text or None, box=box.SIMPLE)
    shown.add_column("")
    for column in table.columns:
        shown.add_column(column.label, justify="right")
    for row in table.rows:
        cells = []
        for column in table.columns:
            cell = row.cells.get(column.key)
            if cell is None or cell.value is None:
                cells.append("")
                continue
            text = f"{cell.value:.{column.digits}f}"
            if cell.low is not None and cell.high is not None:
                text += f" [{cell.low:.{column.digits}f}, {cell.high:.{column.digits}f}]"
            cells.append(text)
        shown.add_row(row.label, *cells, style="bold" if row.emphasis else "")
    return shown
