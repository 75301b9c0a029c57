"""What a disk may hold after its power was cut: the names that were safe, and rubbish beside."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

Cut = Callable[[Path, random.Random], None]


def finished(folder: Path) -> int:
    """How many parts of some work are whole: transactions of all runs, and stages."""
    from onebasin.store import Run

    runs = [path.parent for path in folder.rglob("manifest.json")] if folder.exists() else []
    stages = len(list(folder.glob("stages/*/stage.json"))) if folder.exists() else 0
    # The runs of a stage are removed when it is whole: it counts for more than they can have.
    return stages * 1_000_000 + sum(Run.open(run).transactions for run in runs)


def _places(folder: Path) -> list[Path]:
    """The runs in a folder, or the folder itself where there is none yet."""
    found = [path.parent for path in folder.rglob("manifest.json")]
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
    return found or [folder]


def _unnamed(run: Path, chance: random.Random, change: Callable[[bytes], bytes]) -> None:
    """The next shard of each stream, and the next state, as far as the disk had come."""
    for kind in ("streams", "states"):
        shards = sorted((run / kind).glob("*-*.safetensors"))
        if not shards:
            continue
        last = shards[-1]
        name, _, number = last.stem.rpartition("-")
        path = last.with_name(f"{name}-{int(number) + 1:06d}.safetensors")
        if not path.exists():
            path.write_bytes(change(last.read_bytes()))


def truncated(folder: Path, chance: random.Random) -> None:
    """The file that was written last is cut off; no manifest names it yet."""
    for run in _places(folder):
        _unnamed(run, chance, lambda content: content[: chance.randrange(len(content))])


def zeroed(folder: Path, chance: random.Random) -> None:
    """The file that was written last has its size, and nothing in it."""
    for run in _places(folder):
        _unnamed(run, chance, lambda content: bytes(len(content)))


def temporary(folder: Path, chance: random.Random) -> None:
    """Files that had not taken their names."""
    for run in _places(folder):
        (run / f".manifest.json.{chance.randrange(9999)}-ab.partial").write_bytes(b'{"format": ')
        for kind in ("streams", "states"):
            if (run / kind).is_dir():
                name = f".draws-000123.safetensors.{chance.randrange(9999)}-ab.partial"
                (run / kind / name).write_bytes(chance.randbytes(100))


def stale(folder: Path, chance: random.Random) -> None:
    """A lock that nobody holds."""
    for run in {folder, *_places(folder)}:
        (run / ".lock").write_text(str(chance.randrange(2**31)))


def everything(folder: Path, chance: random.Random) -> None:
    """All of these."""
    for cut in (truncated, temporary, stale):
        cut(folder, chance)


CUTS: dict[str, Cut] = {
    cut.__name__: cut for cut in (truncated, zeroed, temporary, stale, everything)
}
