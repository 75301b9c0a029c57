"""Whether the abuse would see what it is there to see."""

import contextlib
import errno
import importlib
import io
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from onebasin.store import StoreError

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Modules of the harness by name."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield lambda name: importlib.import_module(f"abuse.{name}")
    for name in [name for name in sys.modules if name.partition(".")[0] == "abuse"]:
        del sys.modules[name]


def caught(function: Any) -> BaseException:
    with pytest.raises(Exception) as found:  # noqa: PT011
        function()
    return found.value


def test_only_sentences_of_ours_count_as_such(part: Any) -> None:
    from onebasin.symmetry import Symmetry

    is_ours = part("outcomes").is_ours

    def refuse() -> None:
        raise StoreError("the file is not what it should be")

    def mute() -> None:
        raise StoreError("no")

    assert is_ours(caught(refuse))
    assert not is_ours(caught(mute))
    for raw in (lambda: json.loads("{"), lambda: int("a word"), lambda: Path("no").read_text()):
        assert not is_ours(caught(raw))
    assert is_ours(caught(lambda: Symmetry.from_json("{}")))


def test_what_a_reader_gives_is_told_apart_bit_for_bit(part: Any) -> None:
    import numpy as np

    digest = part("outcomes").digest
    found = {"a": [np.zeros(3), "x"], "b": None}
    assert digest(found) == digest({"b": None, "a": [np.zeros(3), "x"]})
    for other in (np.array([0, 0, -0.0]), np.zeros(3, np.float32), np.zeros((3, 1))):
        assert digest({**found, "a": [other, "x"]}) != digest(found)


@pytest.mark.parametrize("touch", ["change", "make", "remove", "same content"])
def test_the_canary_notices(part: Any, tmp_path: Path, touch: str) -> None:
    canary = part("canary")
    victim = tmp_path / "a" / "victim"
    victim.parent.mkdir()
    victim.write_text(canary.SECRET)
    os.utime(victim, (1, 1))
    before = canary.snapshot(tmp_path)
    assert not canary.differences(before, canary.snapshot(tmp_path))
    if touch == "remove":
        victim.unlink()
    else:
        texts = {"change": "x", "same content": canary.SECRET, "make": "x"}
        (tmp_path / "made" if touch == "make" else victim).write_text(texts[touch])
    assert canary.differences(before, canary.snapshot(tmp_path))


def test_what_is_copied_in_is_found(part: Any, tmp_path: Path) -> None:
    canary = part("canary")
    (tmp_path / "link").symlink_to(BENCHMARKS / "abuse" / "canary.py")
    assert canary.leaked(tmp_path) == ""
    (tmp_path / "copy").write_text(f"... {canary.SECRET} ...")
    assert canary.leaked(tmp_path) == "copy"


def test_changes_are_changes_and_the_same_for_the_same_seed(part: Any) -> None:
    changes = part("changes")
    text = json.dumps({"a": [1, 2.5, "x"], "b": {"c": None}}).encode()
    for name in ("a.json", "a.yaml", "a.safetensors"):
        content = b"a: 1\nb: 2\n" if name == "a.yaml" else text
        made = [changes.changed(content, name, random.Random(seed)) for seed in range(60)]
        assert made == [changes.changed(content, name, random.Random(seed)) for seed in range(60)]
        assert sum(new != content for new, _ in made) > 50


def test_an_edit_with_its_checksum_put_right_is_taken_for_whole(part: Any, tmp_path: Path) -> None:
    from onebasin.store import Run

    runs, seals = part("readers.runs"), part("seals")
    runs.make_run(tmp_path)
    path = tmp_path / "run" / "manifest.json"
    before = path.read_bytes()
    edited = before.replace(b'"text": "so far"', b'"text": "so on"')
    path.write_bytes(edited)
    with pytest.raises(StoreError, match="checksum"):
        Run.open(tmp_path / "run")
    path.write_bytes(seals.reseal_json(before, edited))
    assert Run.open(tmp_path / "run").notes["text"] == "so on"


def test_so_is_one_of_a_file_of_tensors(part: Any, tmp_path: Path) -> None:
    from onebasin.store import load

    runs, seals = part("readers.runs"), part("seals")
    runs.make_posteriors(tmp_path)
    path = tmp_path / "Draws.safetensors"
    before, read = path.read_bytes(), 0
    for edited in (seals.edit_tensors(path, random.Random(seed)) for seed in range(40)):
        if edited is not None and edited != before:
            (tmp_path / "edited.safetensors").write_bytes(edited)
            with contextlib.suppress(StoreError):
                load(tmp_path / "edited.safetensors")
                read += 1
    assert read


def test_a_disk_that_is_full_stays_so_and_half_of_a_write_fits(part: Any, tmp_path: Path) -> None:
    full_disk = part("full_disk")
    disk = full_disk.Disk(tmp_path / "disk", 3)
    with full_disk.filling(disk):
        (tmp_path / "disk").mkdir()
        (tmp_path / "disk" / "a").write_text("first")
        (tmp_path / "elsewhere").write_text("room enough")
        with open(tmp_path / "disk" / "b", "wb") as file:
            file.write(b"second")
            for _ in range(2):
                with pytest.raises(OSError, match="No space") as found:
                    file.write(b"third!")
                assert found.value.errno == errno.ENOSPC
        with pytest.raises(OSError, match="No space"):
            os.replace(tmp_path / "disk" / "a", tmp_path / "disk" / "c")
    assert (tmp_path / "disk" / "b").read_bytes() == b"secondthithi"
    assert io.open is open
    os.replace(tmp_path / "disk" / "a", tmp_path / "disk" / "c")
