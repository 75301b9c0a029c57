"""Files that a stranger may have made: names stay in their folder, sizes are looked at first.

A folder that somebody else made is data, not instruction. What it names is a name, never a path;
a link in it leads nowhere; pipes and devices are not read; nothing outside of it is created,
changed, removed or read. All functions raise `FileError` with one clause for people; callers that
have an error of their own put it in their sentence.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

# Larger files of text were not written by onebasin.
LARGEST_TEXT = 2**26
DEEPEST_JSON = 100
_NAME = re.compile(r"[^/\\\x00-\x1f\x7f]{1,255}")


class FileError(ValueError):
    """A file is not what it may be; the message is a clause that names it."""


def is_name(name: object) -> bool:
    """Whether a text is the name of one file or folder, and not a path."""
    return isinstance(name, str) and bool(_NAME.fullmatch(name)) and name not in (".", "..")


def check_name(name: object, where: str | os.PathLike[str]) -> str:
    """Refuses a name that could lead out of the folder that it is in.

    Args:
        name: What a file says that another is called.
        where: The file or folder that says so, for the message.
    """
    if not isinstance(name, str) or not is_name(name):
        raise FileError(f"{os.fspath(where)} names {name!r:.80}, which is no plain file name")
    return name


def inside(folder: str | os.PathLike[str], name: object) -> Path:
    """The path of what a folder calls by a relative name, such as `streams/draws.json`.

    The folder itself may be a link, as it is what the user named; no part below it may.

    Raises:
        FileError: If the name is absolute, has a part such as `..`, or leads over a link.
    """
    root = Path(folder)
    parts = name.split("/") if isinstance(name, str) else [name]
    path = root
    for part in parts:
        path = path / check_name(part, root)
        if path.is_symlink():
            raise FileError(f"{path} is a link, and links are not followed out of {root}")
    return path


def check_own_folder(path: str | os.PathLike[str]) -> Path:
    """Refuses a folder inside another that is a link, or no folder; one that is missing is fine."""
    path = Path(path)
    if path.is_symlink():
        raise FileError(f"{path} is a link, and links are not followed")
    if path.exists() and not path.is_dir():
        raise FileError(f"{path} is not a folder")
    return path


@contextlib.contextmanager
def open_regular(
    path: str | os.PathLike[str], *, largest: int | None = None, follow: bool = False
) -> Iterator[io.BufferedReader]:
    """A file open for reading, if it is a regular one: no link, pipe, device or folder.

    Args:
        path: The file.
        largest: Refuse more bytes than this, before any is read.
        follow: Whether a link is followed, as it is where the user named the file.

    Raises:
        OSError: If it cannot be opened.
        FileError: If it is of another kind, or larger.
    """
    if not follow and os.path.islink(path):
        raise FileError(f"the file {os.fspath(path)} is a link, and links are not followed")
    # Without O_NONBLOCK a pipe would be waited for, for ever.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    handle = os.open(path, flags | (0 if follow else getattr(os, "O_NOFOLLOW", 0)))
    state = os.fstat(handle)
    if not stat.S_ISREG(state.st_mode):
        os.close(handle)
        raise FileError(f"{os.fspath(path)} is not a regular file")
    with os.fdopen(handle, "rb") as file:
        if largest is not None and state.st_size > largest:
            raise FileError(
                f"the file {os.fspath(path)} has {state.st_size:,} bytes, expected at most "
                f"{largest:,}"
            )
        yield file


def read_bytes(
    path: str | os.PathLike[str], *, largest: int = LARGEST_TEXT, follow: bool = False
) -> bytes:
    """The content of a regular file of at most `largest` bytes."""
    with open_regular(path, largest=largest, follow=follow) as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise FileError(
            f"the file {os.fspath(path)} grew beyond {largest:,} bytes while it was read"
        )
    return content


def parse_json(text: str | bytes) -> Any:
    """What a JSON text says.

    Raises:
        ValueError: If it is not JSON, not UTF-8, or nested more than `DEEPEST_JSON` deep.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError(f"it is nested more than {DEEPEST_JSON} deep") from error
    level = [found]
    for _ in range(DEEPEST_JSON):
        level = [x for item in level for x in _inside_json(item)]
        if not level:
            return found
    raise ValueError(f"it is nested more than {DEEPEST_JSON} deep")


def _inside_json(item: Any) -> list[Any]:
    if isinstance(item, dict):
        item = list(item.values())
    return [x for x in item if isinstance(x, dict | list)] if isinstance(item, list) else []


def read_json(
    path: str | os.PathLike[str], *, largest: int = LARGEST_TEXT, follow: bool = False
) -> Any:
    """What a JSON file says.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is not JSON; `FileError` if it is no regular file, or too large.
    """
    return parse_json(read_bytes(path, largest=largest, follow=follow))


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[IO[bytes]]:
    """A file that takes its name when it is complete and on the disk, or not at all.

    A link of that name is replaced, and what it leads to is left alone.

    Args:
        path: The file.
        durable: Whether to wait until it is on the disk; not for what is worth nothing later.
    """
    target = Path(path)
    # Short, as the name itself may be as long as the system allows.
    temporary = target.with_name(
        f".{target.name[:100]}.{os.getpid()}-{secrets.token_hex(4)}.partial"
    )
    try:
        with open(temporary, "xb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, target)
        if durable:
            sync_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str, *, durable: bool = True) -> None:
    """Writes a text file in one step; see `replacing`."""
    with replacing(path, durable=durable) as file:
        file.write(text.encode("utf-8"))


def remove(path: str | os.PathLike[str]) -> None:
    """Removes a file, a folder with all that is in it, or a link without what it leads to.

    Raises:
        OSError: If it cannot be removed; it may be missing.
    """
    path = Path(path)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Brings the names in a folder onto the disk, where the system has a way to."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256_of(path: str | os.PathLike[str], *, follow: bool = False) -> str:
    """The hash of a regular file."""
    with open_regular(path, follow=follow) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal_text(content: Any) -> str:
    """The hash of what JSON can hold, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
