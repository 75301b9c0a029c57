"""The page: one HTML file with its data, its style and its scripts inside."""

from __future__ import annotations

import base64
import gzip
import importlib.resources
import pkgutil
import re
import urllib.parse
from collections.abc import Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from onebasin._core.files import replacing
from onebasin._core.text import readable
from onebasin.report import figures, palette, parts, reading
from onebasin.store.manifest import version_of
from onebasin.studies import StudyError

NAME = "report.html"


def build(runs: Sequence[str | Path] | str | Path, out: str | Path | None = None) -> Path:
    """Writes a report of one or more runs as one HTML file, which opens without a network.

    Runs of the same study stand side by side: tables with the difference of their numbers, figures
    one under the other. Runs of different studies are parts of one page. A run that is not finished
    shows what there is, and says what is missing.

    Args:
        runs: Folders of runs.
        out: The file; `report.html` in the first run's folder if left out.

    Returns:
        The file.

    Raises:
        StudyError: If a folder is no run, or one of another version, or the file cannot be written.
    """
    folders = [runs] if isinstance(runs, str | Path) else runs
    return write(reading.read([Path(folder) for folder in folders]), out)


def write(runs: Sequence[reading.Run], out: str | Path | None = None) -> Path:
    """Writes the report of runs that were read."""
    path = runs[0].folder / NAME if out is None else Path(out)
    if path.is_dir():
        raise StudyError(
            f"got {readable(path)} for the report, which is a folder: name a file in it"
        )
    if not path.parent.is_dir():
        raise StudyError(
            f"got {readable(path)} for the report, and there is no folder "
            f"{readable(path.parent)}: make it first"
        )
    page = readable(render(runs)).encode()
    try:
        with replacing(path) as file:
            file.write(page)
    except OSError as error:
        raise StudyError(
            f"the report {readable(path)} cannot be written: {error.strerror}"
        ) from error
    return path


def render(runs: Sequence[reading.Run]) -> str:
    """The page of these runs, as text."""
    groups = parts.slots(runs)
    shown = [parts.part(same, number, groups) for number, same in enumerate(reading.by_study(runs))]
    drawn = [figure for part in shown for figure in part.figures]
    title = shown[0].title if len(shown) == 1 else "Studies: " + ", ".join(p.title for p in shown)
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=title,
            parts=shown,
            specs=Markup(figures.safe_json([figure.spec for figure in drawn])),
            plotly=_plotly() if drawn else "",
            light=palette.theme(dark=False),
            dark=palette.theme(dark=True),
            version=version_of("onebasin"),
            style=Markup(_asset("page.css")),
            scripts=[Markup(_asset(name)) for name in ("figures.js", "page.js")],
        )
    )


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["prose"] = _prose
    environment.filters["inline"] = _inline
    environment.filters["data_uri"] = _data_uri
    return environment


def _asset(name: str) -> str:
    return (importlib.resources.files("onebasin.report") / "assets" / name).read_text("utf-8")


def _inline(text: str) -> Markup:
    """Text with `code` in it."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _prose(text: str) -> Markup:
    """Paragraphs, with an empty line between them."""
    blocks = [block.strip() for block in re.split(r"\n\s*\n", text) if block.strip()]
    return Markup("\n").join(Markup("<p>{}</p>").format(_inline(block)) for block in blocks)


def _data_uri(text: str) -> str:
    # The mark at the front tells spreadsheets that this is UTF-8.
    return "data:text/csv;charset=utf-8," + urllib.parse.quote(
        "\ufeff" + text, safe="", errors="backslashreplace"
    )


def _plotly() -> str:
    """Plotly's script, compressed: it is 70 per cent smaller so, and browsers can unpack it."""
    script = pkgutil.get_data("plotly", "package_data/plotly.min.js")
    if script is None:
        raise StudyError("plotly is installed without its script: install plotly again")
    return base64.b64encode(gzip.compress(script, 9, mtime=0)).decode()
