"""`onebasin data`: which data sets there are, getting them, checking their files."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

from onebasin.cli.messages import fail, print_json, working
from onebasin.cli.networks import JsonOption
from onebasin.data import DataError, Source, files
from onebasin.data.catalogue import CATALOGUE
from onebasin.data.loading import known

RootOption = Annotated[
    Path | None,
    typer.Option(
        "--root",
        metavar="DIR",
        help=f"A folder with files; after it those in {files.VARIABLE} and the cache are looked "
        "at.",
    ),
]

app = typer.Typer(
    help="List, download and check data sets.\n\nExample: `onebasin data get mnist`",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@app.command("list")
def list_(root: RootOption = None, as_json: JsonOption = False) -> None:
    """List the data sets: what is here, how large it is, its licence and whom to cite.

    Example: `onebasin data list`
    """
    with working("Looking for data sets", as_json):
        folders = files.roots(root)
        rows = [_row(source, folders) for source in CATALOGUE.values()]
    if as_json:
        print_json({"data_sets": rows, "folders": [str(folder) for folder in folders]})
        return
    table = Table("data set", "here", "size", "licence, whom to cite", box=box.SIMPLE_HEAD)
    for column in table.columns[:3]:
        column.no_wrap = True
    for row in rows:
        here = "all" if row["complete"] else "part" if row["here"] else "no"
        size = decimal(row["bytes"]) if row["bytes"] else ""
        table.add_row(row["name"], here, size, f"{row['licence']}; {row['citation']}")
    Console().print(table)


@app.command()
def get(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Data sets to download.")],
    root: Annotated[
        Path | None,
        typer.Option(
            "--root",
            metavar="DIR",
            help="The folder to download to, instead of the cache; made if it is not there.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Download data sets that are not complete here, and check their files.

    Example: `onebasin data get mnist fashion-mnist`
    """
    results = {}
    for source in _sources(names):
        with working(f"Getting {source.name}", as_json, spinner=False), _made(root):
            folders = files.roots(root)
            found = files.find(source, folders, complete=True)
            if found is None:
                with _bar(source.name) as progress:
                    found = files.download(source, root or files.cache(), progress)
                did = "downloaded"
            else:
                files.check(source, *found)
                did = "already here"
        results[source.name] = {"did": did, "what": found[0].what, "files": list(found[1].values())}
        if not as_json:
            where = _folder(found[1])
            typer.echo(f"{source.name}: {did}, {found[0].what}{f' in {where}' if where else ''}")
    if as_json:
        print_json({"data_sets": _as_text(results)})


@app.command()
def check(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...]", help="Data sets to check; all that are here if none."),
    ] = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the files that are here with the published checksums.

    Example: `onebasin data check mnist`
    """
    results: dict[str, Any] = {}
    bad = None
    for source in _sources(names or list(CATALOGUE)):
        with working(f"Checking {source.name}", as_json):
            folders = files.roots(root)
            found = files.find(source, folders)
            if found is None and names:
                raise DataError(files.missing(source, folders))
            error = _fault(source, *found) if found else None
        if found is None:
            continue
        results[source.name] = {"ok": error is None, "what": found[0].what, "error": error}
        bad = bad or error
        if not as_json:
            where = _folder(found[1])
            said = f"{found[0].what}{f' in {where}' if where else ''}"
            typer.echo(f"{source.name}: {'damaged' if error else 'good'}, {said}")
    if as_json:
        print_json({"data_sets": results})
    if bad:
        fail(bad)


@contextmanager
def _made(folder: Path | None) -> Iterator[None]:
    """A folder to download to; one that was made for nothing goes again."""
    try:
        with nullcontext() if folder is None else files.made(folder):
            yield
    except OSError as error:
        raise ValueError(
            f"got --root {folder}, which cannot be made a folder ({error.strerror or error}): name "
            "another"
        ) from error


def _sources(names: list[str]) -> list[Source]:
    try:
        return [known(name) for name in names]
    except DataError as error:
        fail(str(error))


def _row(source: Source, folders: list[Path]) -> dict[str, Any]:
    found = files.find(source, folders)
    downloads = [form for form in source.forms if form.can_be_downloaded]
    form = found[0] if found else (downloads or source.forms)[0]
    return {
        "name": source.name,
        "here": found[0].what if found else None,
        "folder": _folder(found[1]) if found else None,
        "complete": bool(found) and not form.partial,
        "bytes": form.bytes,
        "can_be_downloaded": bool(downloads),
        "about": source.about,
        "licence": source.licence,
        "citation": source.citation,
    }


def _folder(paths: Any) -> str | None:
    return str(next(iter(paths.values())).parent) if paths else None


def _fault(source: Source, form: Any, paths: Any) -> str | None:
    try:
        files.check(source, form, paths)
    except DataError as error:
        return str(error)
    return None


def _as_text(results: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {**result, "files": [str(path) for path in result["files"]]}
        for name, result in results.items()
    }


class _Bar:
    """A bar of ours in the place of one of tqdm's, as pooch wants it."""

    def __init__(self, shown: Progress, what: str) -> None:
        self._shown = shown
        self._task = shown.add_task(what, total=None)

    @property
    def total(self) -> float | None:
        return self._shown.tasks[0].total

    @total.setter
    def total(self, size: float) -> None:
        self._shown.reset(self._task, total=size or None)

    def update(self, size: float) -> None:
        self._shown.advance(self._task, size)

    def reset(self) -> None:
        self._shown.reset(self._task)

    def close(self) -> None:
        pass


@contextmanager
def _bar(what: str) -> Iterator[_Bar]:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(
        *columns,
        TransferSpeedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as shown:
        yield _Bar(shown, what)
