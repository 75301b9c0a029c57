"""Many damaged and many hostile runs: one sentence or one stage less, and never anything else.

`ONEBASIN_MUTATIONS=2000` tries as many of each kind; the seed of each is its number.
"""

import contextlib
import json
import os
import random
import shutil
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from report import toy

from onebasin.report import build
from onebasin.studies import StudyError, copy_results, load_config, sections
from onebasin.studies.compact import CompactConfig
from onebasin.studies.notes import sealed

COUNT = int(os.environ.get("ONEBASIN_MUTATIONS", "20"))
FILES = ("run.json", "stages/quality/stage.json", "stages/quality/section.json")
SWAPS: list[Any] = [None, 1e308, -1e308, 5e-324, 10**400, -1, "", "\ud800", [], {}, [[[]]], True]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy.run(tmp_path_factory.mktemp("runs") / "whole", width=8)


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, cut off, doubled or put in."""
    place = rng.randrange(len(content))
    end = min(len(content), place + rng.randrange(1, 40))
    return rng.choice(
        [
            content[:place]
            + bytes([content[place] ^ (1 << rng.randrange(8))])
            + content[place + 1 :],
            content[:place],
            content[:place] + content[end:],
            content[:end] + content[place:],
            content[:place] + bytes(rng.randrange(256) for _ in range(8)) + content[place:],
            content[:place] + b"0" * (end - place) + content[end:],
            content[:place] + b"[" * 5000 + content[place:],
        ]
    )


def changed(content: Any, rng: random.Random) -> Any:
    """One place of what JSON holds, with another value in it."""
    places: list[tuple[Any, Any]] = []

    def walk(item: Any) -> None:
        keys = (
            item if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else ()
        )
        for key in keys:
            places.append((item, key))
            walk(item[key])

    walk(content)
    item, key = rng.choice(places)
    item[key] = rng.choice(SWAPS)
    return content


def read(folder: Path, kept: Path) -> dict[str, Any]:
    """All that reads a run; what it refuses, it refuses with a sentence of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: dict[str, Any] = {}
        with contextlib.suppress(StudyError):
            found = {name: section.model_dump() for name, section in sections(folder).items()}
        for work in (lambda: build(folder), lambda: copy_results(folder, kept)):
            with contextlib.suppress(StudyError):
                work()
    return found


def test_damaged_runs_are_noticed(whole: Path, tmp_path: Path) -> None:
    expected = read(whole, tmp_path / "first")
    counts: Counter[str] = Counter()
    for seed in range(COUNT):
        rng = random.Random(seed)
        folder = shutil.copytree(whole, tmp_path / f"run-{seed}")
        file = folder / rng.choice(FILES)
        before = file.read_bytes()
        file.write_bytes(damaged(before, rng))
        found = read(folder, tmp_path / f"kept-{seed}")
        same = file.read_bytes() == before or json_of(file) == json.loads(before)
        silent = [name for name in found if found[name] != expected[name]]
        assert not silent, f"seed {seed}: {silent}"
        counts["noticed" if len(found) < len(expected) else "harmless"] += 1
        assert same or len(found) < len(expected), f"seed {seed}: {file.name} went unnoticed"
        shutil.rmtree(folder)
        shutil.rmtree(tmp_path / f"kept-{seed}", ignore_errors=True)
    assert counts["noticed"] > COUNT // 2


def json_of(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return None


def test_hostile_runs_that_vouch_for_themselves_end_in_a_sentence(
    whole: Path, tmp_path: Path
) -> None:
    for seed in range(COUNT):
        rng = random.Random(seed)
        folder = shutil.copytree(whole, tmp_path / f"run-{seed}")
        stage = rng.choice(["picture", "quality", "curves"])
        section, note = (
            folder / "stages" / stage / name for name in ("section.json", "stage.json")
        )
        content = json.loads(section.read_text())
        own = json.loads(note.read_text())
        which = rng.choice(["section", "section", "note", "run"])
        if which == "section":
            section.write_text(json.dumps(changed(content, rng)))
            own["files"]["section.json"] = hash_of(section)
        if which == "note":
            own = changed(own, rng)
        own.pop("sha256", None)
        note.write_text(sealed(own))
        if which == "run":
            run = json.loads((folder / "run.json").read_text())
            run = changed(run, rng)
            run.pop("sha256", None)
            (folder / "run.json").write_text(sealed(run))
        try:
            read(folder, tmp_path / f"kept-{seed}")
        except Exception as error:
            raise AssertionError(f"seed {seed}: {which} of {stage}") from error
        shutil.rmtree(folder)
        shutil.rmtree(tmp_path / f"kept-{seed}", ignore_errors=True)


def hash_of(path: Path) -> str:
    import hashlib

    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_damaged_configurations_are_refused_or_read(tmp_path: Path) -> None:
    text = b"hidden: [8, 8]\nprior_variance: 0.5\nhmc: {num_samples: 7, num_chains: 3}\nseed: 3\n"
    for seed in range(5 * COUNT):
        file = tmp_path / "own.yaml"
        file.write_bytes(damaged(text, random.Random(seed)))
        try:
            with contextlib.suppress(StudyError):
                load_config(CompactConfig, "compact", file=file)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
