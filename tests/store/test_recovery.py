"""The way back: a run whose last transaction is bad goes on from the one before, bit for bit."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from infer.problems import small_network

import onebasin as ob
from onebasin._core.files import seal_text
from onebasin.store import Run, StoreError


def sample(folder: Path) -> list[np.ndarray]:
    draws = ob.infer.sgld(
        jax.random.key(0),
        small_network(),
        num_chains=2,
        num_samples=6,
        num_warmup=2,
        thin=2,
        init="prior",
        run=folder,
        chunk=2,
    )
    return [np.asarray(leaf) for leaf in jax.tree.leaves(draws)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[np.ndarray]]:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    return folder, sample(folder)


def last_shard(folder: Path) -> Path:
    return max((folder / "streams").iterdir(), key=lambda path: path.stat().st_mtime_ns)


def last_state(folder: Path) -> Path:
    states = json.loads((folder / "manifest.json").read_text())["states"].values()
    return folder / max(states, key=lambda state: state["index"])["file"]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 64
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


HARMS: dict[str, Callable[[Path], None]] = {
    "a flipped bit in the last shard": lambda folder: flip(last_shard(folder)),
    "the last shard is cut": lambda folder: cut(last_shard(folder)),
    "the last shard is lost": lambda folder: last_shard(folder).unlink(),
    "a flipped bit in the state": lambda folder: flip(last_state(folder)),
    "the state is lost": lambda folder: last_state(folder).unlink(),
    "the manifest is cut": lambda folder: cut(folder / "manifest.json"),
    "the manifest is lost": lambda folder: (folder / "manifest.json").unlink(),
    "the manifest is empty": lambda folder: (folder / "manifest.json").write_bytes(b""),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_run_goes_back_and_ends_as_if_nothing_had_happened(
    whole: tuple[Path, list[np.ndarray]], tmp_path: Path, harm: str
) -> None:
    folder = Path(shutil.copytree(whole[0], tmp_path / "run"))
    transactions = Run.open(folder).transactions
    HARMS[harm](folder)
    with pytest.raises(StoreError, match="onebasin recover"):
        sample(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    cost = Run.recovery(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert cost.transactions == transactions - 1
    assert sum(cost.lost.values()) > 0 or "last shard is lost" in harm or "manifest" in harm
    assert Run.recover(folder) == cost
    run = Run.open(folder)
    run.check()
    assert run.transactions == transactions - 1
    assert {name: len(run.stream(name)) for name in run.streams()} == {
        name: count for name, count in cost.kept.items() if count
    }
    for ours, theirs in zip(sample(folder), whole[1], strict=True):
        assert ours.tobytes() == theirs.tobytes()
    assert Run.recovery(folder).reason == ""


def steps(folder: Path, count: int) -> Path:
    with Run.create(folder, {}) as run:
        for step in range(count):
            with run.transaction() as t:
                t.append("draws", {"w": np.full((2, 3), step)})
                t.put("state", {"step": step})
                t.note(done=step + 1)
    return folder


def test_what_is_lost_is_said(tmp_path: Path) -> None:
    folder = steps(tmp_path / "run", 3)
    flip(folder / "streams/draws-000002.safetensors")
    cost = Run.recovery(folder)
    assert (cost.kept, cost.lost) == ({"draws": 4}, {"draws": 2})
    assert "draws-000002.safetensors was edited" in str(cost)
    assert "2 transactions: 'draws' keeps 4 draws and loses 2" in str(cost)
    Run.recover(folder)
    run = Run.continue_or_create(folder, {})
    assert (run.notes, run.get("state", like={"step": 0})) == ({"done": 2}, {"step": 1})
    assert run.stream("draws")[:]["w"][:, 0].tolist() == [0, 0, 1, 1]


def test_a_run_that_is_whole_stays_as_it_is(tmp_path: Path) -> None:
    folder = steps(tmp_path / "run", 2)
    before = (folder / "manifest.json").read_bytes()
    cost = Run.recover(folder)
    assert (cost.reason, cost.lost, cost.transactions) == ("", {}, 2)
    assert "is whole, with 2 transactions" in str(cost)
    assert (folder / "manifest.json").read_bytes() == before


def test_it_goes_back_to_the_beginning_and_no_further(tmp_path: Path) -> None:
    folder = steps(tmp_path / "run", 1)
    flip(folder / "streams/draws-000000.safetensors")
    assert Run.recover(folder).transactions == 0
    run = Run.continue_or_create(folder, {})
    assert (run.streams(), run.states(), run.notes) == ((), (), {})
    run.close()
    with Run.continue_or_create(folder, {}) as run, run.transaction() as t:
        t.append("draws", {"w": np.ones(2)})
    Run.open(folder).check()


def test_damage_that_is_older_is_not_mended(tmp_path: Path) -> None:
    folder = steps(tmp_path / "run", 3)
    flip(folder / "streams/draws-000001.safetensors")
    for act in (Run.recovery, Run.recover):
        with pytest.raises(StoreError, match=r"draws-000001.*older than the last transaction"):
            act(folder)
    assert Run.open(folder).transactions == 3


def test_twice_in_a_row_is_once_too_often(tmp_path: Path) -> None:
    folder = steps(tmp_path / "run", 3)
    flip(folder / "streams/draws-000002.safetensors")
    Run.recover(folder)
    flip(folder / "streams/draws-000001.safetensors")
    with pytest.raises(StoreError, match=r"the run has gone back already"):
        Run.recover(folder)


def test_a_later_manifest_is_not_taken_for_damage(tmp_path: Path) -> None:
    folder = steps(tmp_path / "run", 2)
    content = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**content, "version": 9}))
    with pytest.raises(StoreError, match="update onebasin"):
        Run.recover(folder)


def test_there_has_to_be_a_run(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(StoreError, match="there is no run in"):
            Run.recover(place)
    assert not (tmp_path / "nothing").exists()


def test_a_lost_manifest_is_noticed_before_anything_is_made_anew(tmp_path: Path) -> None:
    folder = steps(tmp_path / "run", 2)
    for name in ("manifest.json", "manifest.previous.json"):
        (folder / name).unlink()
        for begin in (Run.create, Run.continue_or_create):
            with pytest.raises(StoreError, match=r"4 files of a run, and its manifest\.json is l"):
                begin(folder, {})
    assert len(list(folder.rglob("*.safetensors"))) == 4
    with pytest.raises(StoreError, match="is no better"):
        Run.recover(folder)


def test_a_run_of_the_format_before_is_read_and_goes_on(tmp_path: Path) -> None:
    folder = steps(tmp_path / "run", 2)
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    for name in ("sha256", "before"):
        del content[name]
    content["version"] = 1
    path.write_text(json.dumps({"sha256": seal_text(content), **content}))
    (folder / "manifest.previous.json").unlink()
    (folder / "states/state-000001.safetensors").unlink()
    assert len(Run.open(folder).stream("draws")) == 4
    broken = Path(shutil.copytree(folder, tmp_path / "broken"))
    flip(broken / "streams/draws-000001.safetensors")
    with pytest.raises(StoreError, match="was written by an older onebasin"):
        Run.recover(broken)
    run = Run.continue_or_create(folder, {})
    assert run.get("state", like={"step": 0}) == {"step": 1}
    with run.transaction() as t:
        t.append("draws", {"w": np.full((2, 3), 2)})
        t.put("state", {"step": 2})
    run.close()
    flip(folder / "streams/draws-000002.safetensors")
    assert Run.recover(folder).kept == {"draws": 4}


def test_a_run_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    folder = steps(tmp_path / "run", 2)
    hold = (
        "import sys; from onebasin.store import Run\n"
        "run = Run.continue_or_create(sys.argv[1], {}); print('ready', flush=True)\n"
        "sys.stdin.read()"
    )
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", hold, str(folder)], **pipes) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        flip(folder / "streams/draws-000001.safetensors")
        with pytest.raises(StoreError, match="being written by another process"):
            Run.recover(folder)
        other.kill()
    assert Run.recover(folder).lost == {"draws": 2}
