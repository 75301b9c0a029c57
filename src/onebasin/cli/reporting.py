"""`onebasin report`: what runs of a study found, as one page."""

from pathlib import Path
from typing import Annotated

import typer

from onebasin._core.text import readable
from onebasin.cli.messages import print_json, warn, working
from onebasin.cli.networks import JsonOption


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Folders of runs, as `study ... --out` made them."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The page; report.html in the first run if left out."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write what runs found as one HTML page, which opens without a network.

    Two or more runs of the same study are compared: their tables stand side by side with the
    difference, their figures one under the other. A run that is not finished shows what there is.

    Example: `onebasin report runs/compact runs/compact-wide --out compared.html`
    """
    from onebasin.report.building import write
    from onebasin.report.reading import read

    with working("Writing the report", as_json):
        found = read(runs)
        path = write(found, out)
    several = len(found) > 1
    missing = [f"{r.name}/{stage}" if several else stage for r in found for stage in r.missing]
    if as_json:
        print_json({"report": str(path), "missing": missing})
        return
    for run in found:
        if run.missing:
            warn(f"the run {run.folder} is not finished: {', '.join(run.missing)} missing.")
        for fault in run.faults:
            warn(f"{fault}: give the command that made the run again.")
    typer.echo(f"Wrote {readable(path)}.")
