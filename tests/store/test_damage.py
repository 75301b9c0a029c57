"""What happens to files: it is noticed, named, and the rest can still be read."""

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from onebasin.store import DamageWarning, Run, StoreError

DRAWS = 3
SHARDS = 4
VICTIM = "streams/draws-000001.safetensors"
MANIFEST = "manifest.json"


def make(folder: Path, offset: int = 0) -> Path:
    with Run.create(folder, {"offset": offset}) as run:
        for shard in range(SHARDS):
            numbers = np.arange(shard * DRAWS, (shard + 1) * DRAWS, dtype=np.float32) + offset
            with run.transaction() as t:
                t.append(
                    "draws",
                    {
                        "params": {"w": np.stack([numbers] * 5, 1)},
                        "mode": (numbers > 4).astype(np.int32),
                    },
                )
                t.put("state", {"step": np.array(shard)})
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("runs") / "whole")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def truncate(folder: Path) -> None:
    path = folder / VICTIM
    path.write_bytes(path.read_bytes()[:-7])


def cut_header(folder: Path) -> None:
    path = folder / VICTIM
    path.write_bytes(path.read_bytes()[:20])


def empty(folder: Path) -> None:
    (folder / VICTIM).write_bytes(b"")


def remove(folder: Path) -> None:
    (folder / VICTIM).unlink()


def other_type(folder: Path) -> None:
    tensors = load_file(folder / VICTIM)
    tensors["params/w"] = tensors["params/w"].astype(np.float16)
    save_file(tensors, folder / VICTIM, _metadata(folder / VICTIM))


def other_shape(folder: Path) -> None:
    tensors = load_file(folder / VICTIM)
    save_file(
        {name: x[:2] for name, x in tensors.items()}, folder / VICTIM, _metadata(folder / VICTIM)
    )


def foreign(folder: Path) -> None:
    shutil.copy(make(folder.parent / "other", 100) / VICTIM, folder / VICTIM)


def not_ours(folder: Path) -> None:
    save_file(load_file(folder / VICTIM), folder / VICTIM)


def lengthen(folder: Path) -> None:
    with open(folder / VICTIM, "ab") as file:
        file.write(b"\0")


def _metadata(path: Path) -> dict[str, str]:
    content = path.read_bytes()
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]


SEEN_AT_ONCE: list[tuple[Callable[[Path], None], str]] = [
    (truncate, "truncated"),
    (cut_header, "truncated"),
    (empty, "has 0 bytes"),
    (lengthen, "damaged"),
    (remove, "is missing"),
    (other_type, "'params/w' of type F16 and shape (3, 5), expected F32"),
    (other_shape, "of type I32 and shape (2,), expected I32 and (3,)"),
    (foreign, "is not of this run"),
    (not_ours, "is not a file that onebasin wrote"),
]


@pytest.mark.parametrize(("harm", "said"), SEEN_AT_ONCE, ids=[f.__name__ for f, _ in SEEN_AT_ONCE])
def test_damage_is_named_on_opening_and_the_rest_is_read(
    folder: Path, harm: Callable[[Path], None], said: str
) -> None:
    harm(folder)
    for look in (Run.open, lambda path: Run.continue_or_create(path, {"offset": 0})):
        with pytest.raises(StoreError) as caught:
            look(folder)
        assert said in str(caught.value)
        assert str(folder / VICTIM) in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.warns(DamageWarning, match="draws-000001"):
        run = Run.open(folder, damaged="skip")
    with pytest.warns(DamageWarning, match="3 of 12 draws of 'draws' are left out"):
        stream = run.stream("draws")
    assert stream.leaf("params/w")[:, 0].tolist() == [0, 1, 2, *range(6, 12)]
    assert run.get("state", like={"step": np.array(0)})["step"] == SHARDS - 1
    with pytest.raises(StoreError, match="draws-000001"):
        run.check()


def test_two_shards_that_were_swapped_are_both_named(folder: Path) -> None:
    first, second = (folder / f"streams/draws-00000{k}.safetensors" for k in (1, 2))
    aside = first.rename(folder / "aside")
    second.rename(first)
    aside.rename(second)
    with pytest.raises(StoreError, match="2 files of the run are bad") as caught:
        Run.open(folder)
    assert all(str(path) in str(caught.value) for path in (first, second))
    assert "was swapped with another: it says that it is number 2" in str(caught.value)


@settings(max_examples=40)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flipped_bit_is_found(whole: Path, place: float, bit: int) -> None:
    folder = Path(shutil.copytree(whole, whole.parent / "flipped", dirs_exist_ok=True))
    content = bytearray((folder / VICTIM).read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    (folder / VICTIM).write_bytes(content)
    with pytest.raises(StoreError, match="draws-000001"):
        Run.open(folder).check()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        stream = Run.open(folder, damaged="skip").stream("draws")
    assert stream.leaf("mode").shape == (9,)


def test_a_flipped_bit_in_a_state_is_found_when_it_is_restored(folder: Path) -> None:
    path = folder / "states/state-000004.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    run = Run.open(folder)
    with pytest.raises(StoreError, match=r"state-000004.* was edited.*expected"):
        run.get("state")
    assert len(run.stream("draws")) == 12


def edit(folder: Path) -> None:
    path = folder / MANIFEST
    path.write_text(path.read_text().replace('"offset": 0', '"offset": 1'))


def cut(folder: Path) -> None:
    path = folder / MANIFEST
    path.write_bytes(path.read_bytes()[:-30])


def exchange(folder: Path) -> None:
    shutil.copy(make(folder.parent / "other", 100) / MANIFEST, folder / MANIFEST)


def lose(folder: Path) -> None:
    (folder / MANIFEST).unlink()


LIES: list[tuple[Callable[[Path], None], str]] = [
    (edit, "manifest.json was edited"),
    (cut, "is not the manifest of a run, or was cut off"),
    (exchange, "is not of this run"),
    (lose, "has no file manifest.json"),
]


@pytest.mark.parametrize(("harm", "said"), LIES, ids=[f.__name__ for f, _ in LIES])
def test_a_manifest_that_lies_is_named_and_the_files_speak(
    folder: Path, harm: Callable[[Path], None], said: str
) -> None:
    harm(folder)
    with pytest.raises(StoreError) as caught:
        Run.open(folder)
    assert said in str(caught.value)
    assert "manifest.json" in str(caught.value)
    with pytest.warns(DamageWarning, match=r"manifest\.json.*hashes are lost"):
        run = Run.open(folder, damaged="skip")
    assert run.draws().params["w"][:, 0].tolist() == list(range(12))
    assert run.get("state")["step"] == SHARDS - 1


@settings(max_examples=60)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flipped_bit_of_the_manifest_is_found(whole: Path, place: float, bit: int) -> None:
    folder = Path(shutil.copytree(whole, whole.parent / "flipped", dirs_exist_ok=True))
    content = bytearray((folder / MANIFEST).read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    (folder / MANIFEST).write_bytes(content)
    with pytest.raises(StoreError, match=r"manifest\.json"):
        Run.open(folder)
    with pytest.warns(DamageWarning, match=r"manifest\.json"):
        run = Run.open(folder, damaged="skip")
    assert len(run.stream("draws")) == 12


def test_a_later_format_is_not_guessed_at(folder: Path) -> None:
    content = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**content, "version": 9}))
    with pytest.raises(StoreError, match="has version 9 of its format"):
        Run.open(folder)


def test_nothing_to_read_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no file in it can be read"):
        Run.open(tmp_path, damaged="skip")


def test_a_run_that_was_replaced_under_our_hands(folder: Path) -> None:
    run = Run.open(folder)
    exchange(folder)
    with pytest.raises(StoreError, match=r"manifest\.json is of run"):
        run.check()
