"""Files of data sets: found where they lie, downloaded where they do not, checked always."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onebasin._core.files import open_regular
from onebasin.data.errors import DataError
from onebasin.data.source import File, Form, Paths, Source

VARIABLE = "ONEBASIN_DATA"
TIMEOUT = 60
CHUNK = 2**18
METHODS = ("md5", "sha256")


def roots(root: str | os.PathLike[str] | None) -> list[Path]:
    """The folders to look in: the one given, those of the environment variable, the cache.

    Args:
        root: A folder; it must exist.
    """
    given = [] if root is None else [Path(root)]
    if given and not os.path.isdir(given[0]):
        raise DataError(f"got root={str(root)!r}, and there is no such folder: check the path.")
    named = [Path(part) for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
    return [*given, *named, cache()]


def cache() -> Path:
    """The folder that downloads go to."""
    import pooch

    return Path(pooch.os_cache("onebasin"))


def find(
    source: Source, folders: list[Path], *, complete: bool = False
) -> tuple[Form, Paths] | None:
    """The first form of a data set all of whose files lie together, and where.

    Args:
        source: The data set.
        folders: Where to look.
        complete: Pass over forms that are only part of it.
    """
    for form in source.forms:
        if complete and form.partial:
            continue
        for folder in folders:
            for place in form.folders:
                paths = {file.name: folder / place / file.name for file in form.files}
                if all(map(_lies, paths.values())):
                    return form, paths
    return None


def _lies(path: Path) -> bool:
    """Whether a regular file lies there, or a link to one."""
    try:
        return path.is_file()
    except OSError as error:
        raise DataError(
            f"it cannot be seen whether there is a file {path} ({error.strerror or error}): name a "
            "folder that you may read."
        ) from error


def check(source: Source, form: Form, paths: Paths) -> None:
    """Compares files with their checksums.

    Raises:
        DataError: If one differs, or cannot be read; it says what was expected and got, and what
            to do.
    """
    for file in form.files:
        if file.checksum:
            got = _digest(paths[file.name], file.checksum)
            if got != file.checksum:
                again = (
                    f"download it again with `onebasin data get {source.name}`"
                    if form.can_be_downloaded
                    else "restore it"
                )
                raise DataError(
                    f"the file {paths[file.name]} ({paths[file.name].stat().st_size:,} bytes) is "
                    f"not the one of {source.name}: {got}, expected {file.checksum}; remove it and "
                    f"{again}."
                )


def _digest(path: Path, like: str) -> str:
    """The checksum of a file, by the same method as another, which is named before the colon."""
    method = like.partition(":")[0]
    if method not in METHODS:
        raise DataError(f"got the checksum {like!r:.50}, expected md5:... or sha256:....")
    try:
        with open_regular(path, follow=True) as content:
            return f"{method}:{hashlib.file_digest(content, method).hexdigest()}"
    except (OSError, ValueError) as error:
        raise DataError(f"the file {path} cannot be read ({error}): restore it.") from error


@contextlib.contextmanager
def made(folder: Path) -> Iterator[Path]:
    """A folder, made if it is not there; where the block fails, what is empty goes again."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
    except BaseException:
        with contextlib.suppress(OSError):
            for path in new:
                path.rmdir()
        raise


def download(source: Source, folder: Path, progress: Any = None) -> tuple[Form, dict[str, Path]]:
    """Downloads the files of a data set, each checked before it takes its name.

    Args:
        source: The data set.
        folder: Where they go, below which each has its place.
        progress: A bar, as pooch takes it.

    Raises:
        DataError: If it cannot be downloaded, or what came is not what was published.
    """
    form = next((form for form in source.forms if form.can_be_downloaded), None)
    if form is None:
        raise DataError(missing(source, [folder]))
    try:
        with made(folder / form.folders[0]) as place:
            return form, {file.name: _fetch(source, file, place, progress) for file in form.files}
    except OSError as error:
        raise DataError(
            f"{source.name} cannot be downloaded to {folder} ({error.strerror or error}): name a "
            "folder that you may write to."
        ) from error


def missing(source: Source, folders: list[Path]) -> str:
    """What to say of a data set that is nowhere."""
    form = source.forms[0]
    names = ", ".join(file.name for file in form.files[:3]) + ", ..." * (len(form.files) > 3)
    return (
        f"the files of {source.name} ({names} in {form.folders[0] or 'the folder itself'}) are not "
        f"in {', '.join(map(str, folders))}: pass root=, or name a folder in the environment "
        f"variable {VARIABLE}."
    )


def _fetch(source: Source, file: File, place: Path, progress: Any) -> Path:
    import pooch

    path = place / file.name
    if path.exists() and not path.is_file():
        raise DataError(f"{path} is not a regular file, and {file.name} belongs there: remove it.")
    reasons = []
    for url in file.urls:
        try:
            with _quiet():
                pooch.retrieve(
                    url,
                    known_hash=file.checksum or None,
                    fname=file.name,
                    path=place,
                    downloader=pooch.HTTPDownloader(
                        progressbar=progress or False, chunk_size=CHUNK, timeout=TIMEOUT
                    ),
                )
        except ValueError as error:
            got = re.search("but got (?:[a-z0-9]+:)?([0-9a-f]+)", str(error))
            method = file.checksum.partition(":")[0]
            gave = f"{method}:{got[1]}, expected {file.checksum}" if got else _line(error)
            reasons.append(f"{url} gave {gave}")
        except OSError as error:
            reasons.append(f"{url} gave {_line(error)}")
        else:
            return path
    raise DataError(
        f"the file {file.name} of {source.name} could not be downloaded ({'; '.join(reasons)}): "
        f"try again later, or put it into {place} by hand."
    )


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    import pooch

    logger = pooch.get_logger()
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)
