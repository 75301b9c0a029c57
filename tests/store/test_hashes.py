"""Draws are believed when the hash of their shard fits, and stay what they were when read."""

import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from infer.problems import small_network

import onebasin as ob
from onebasin.store import DamageWarning, Run, StoreError, load, save
from onebasin.store.hashes import sha256_known
from onebasin.store.reading import TensorFile

SHARD = "streams/draws-000001.safetensors"


def make(folder: Path) -> Path:
    with Run.create(folder, {}) as run:
        for start in range(0, 12, 4):
            with run.transaction() as t:
                numbers = np.arange(start, start + 4, dtype=np.float32)
                t.append("draws", {"params": {"w": numbers[:, None] * np.ones(6, np.float32)}})
    return folder


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 64
    path.write_bytes(content)


def zero(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-64] + bytes(64))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(tmp_path / "run")


READS: dict[str, Callable[[Path], Any]] = {
    "stream": lambda folder: Run.open(folder).stream("draws")[:],
    "one draw": lambda folder: Run.open(folder).stream("draws")[5],
    "chosen draws": lambda folder: Run.open(folder).stream("draws")[[0, 6, 11]],
    "mapped": lambda folder: Run.open(folder).stream("draws", mapped=True)[4:6],
    "draws": lambda folder: Run.open(folder).draws(),
    "fill": lambda folder: Run.open(folder).stream("draws").fill(np.empty((12, 2)), "params/w"),
    "going on": lambda folder: Run.continue_or_create(folder, {}),
}


@pytest.mark.parametrize("harm", [flip, zero])
@pytest.mark.parametrize("read", READS)
def test_a_shard_that_changed_is_not_believed(
    folder: Path, harm: Callable[[Path], None], read: str
) -> None:
    harm(folder / SHARD)
    with pytest.raises(StoreError, match=r"draws-000001.* was edited.*sha256.*onebasin recover"):
        READS[read](folder)
    assert Run.open(folder).stream("draws")[:4]["params"]["w"][3, 0] == 3
    with pytest.warns(DamageWarning, match="4 of 12 draws"):
        assert len(Run.open(folder).stream("draws", damaged="skip")) == 8


def test_a_sampler_does_not_go_on_over_a_shard_that_changed(tmp_path: Path) -> None:
    def sample() -> Any:
        return ob.infer.sgld(
            jax.random.key(0),
            small_network(),
            num_chains=2,
            num_samples=4,
            num_warmup=2,
            init="prior",
            run=tmp_path / "run",
            chunk=2,
        )

    sample()
    shards = sorted((tmp_path / "run" / "streams").iterdir())
    flip(shards[-1])
    with pytest.raises(StoreError, match="was edited, or its bytes have changed"):
        sample()


def test_what_is_edited_after_it_was_read_is_noticed(folder: Path) -> None:
    stream = Run.open(folder).stream("draws")
    held = stream[4:8]["params"]["w"]
    assert held.flags.owndata
    flip(folder / SHARD)
    assert held[:, 5].tolist() == [4, 5, 6, 7]
    with pytest.raises(StoreError, match="was edited since it was opened"):
        stream[4]
    os.truncate(folder / SHARD, 30)
    with pytest.raises(StoreError, match="draws-000001"):
        stream[4]
    assert held[:, 5].tolist() == [4, 5, 6, 7]
    assert stream[0]["params"]["w"].tolist() == [0] * 6


def test_a_file_that_was_only_touched_is_read_on(folder: Path) -> None:
    stream = Run.open(folder).stream("draws")
    assert stream[4]["params"]["w"][0] == 4
    (folder / SHARD).touch()
    assert stream[5]["params"]["w"][0] == 5
    (folder / SHARD).rename(folder / "aside")
    assert stream[6]["params"]["w"][0] == 6


def test_a_file_is_hashed_once_while_nobody_touches_it(folder: Path) -> None:
    time.sleep(0.1)
    with TensorFile(folder / SHARD) as file:
        sha256_known(file)
        read = _bytes_read()
        for _ in range(10):
            sha256_known(file)
        assert _bytes_read() - read < file.size
        flip(folder / SHARD)
        first = sha256_known(file)
        flip(folder / SHARD)
        assert sha256_known(file) != first


def _bytes_read() -> int:
    path = Path("/proc/self/io")
    if not path.exists():
        pytest.skip("the system does not count what a process reads")
    return int(path.read_text().split()[1])


def test_a_stream_goes_to_another_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    stream = Run.open(folder.name).stream("draws")
    assert stream[1]["params"]["w"][0] == 1
    sent = pickle.dumps(stream)
    monkeypatch.chdir("/")
    assert pickle.loads(sent)[7]["params"]["w"].tolist() == [7] * 6


def test_columns_are_read_alone(folder: Path) -> None:
    stream = Run.open(folder).stream("draws")
    for dtype in (np.float32, np.float64):
        table = np.zeros((6, 3), dtype)
        stream.fill(table, "params/w", first=2, draw=3)
        assert table.tolist() == [[n] * 3 for n in range(3, 9)]
    assert stream.nbytes == 12 * 6 * 4


def test_more_streams_than_the_system_opens_files(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", {})
    with run.transaction() as t:
        for number in range(300):
            t.append("draws", {"w": np.full(1, number)})
    stream = run.stream("draws")
    assert stream[:]["w"].tolist() == list(range(300))
    assert len(list(Path("/proc/self/fd").iterdir())) < 300


def test_draws_are_copied_up_to_a_budget(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"takes 288 bytes.*memory=100 .*mapped=True"):
        Run.open(folder).draws(memory=100)
    draws = Run.open(folder).draws(memory=288)
    assert len(Run.open(folder).draws(mapped=True, memory=100)) == 12
    path = tmp_path / "draws.safetensors"
    save(path, draws)
    with pytest.raises(StoreError, match=r"takes .* bytes in memory, and memory=100"):
        load(path, memory=100)
    copy, mapped = load(path), load(path, mapped=True, memory=100)
    assert isinstance(copy, ob.Draws)
    assert isinstance(mapped, ob.Draws)
    assert not copy.params["w"].flags.writeable
    content = bytearray(path.read_bytes())
    content[-4:] = np.float32(99).tobytes()
    path.write_bytes(content)
    assert copy.params["w"].max() == 11
    assert mapped.params["w"].max() == 99


def test_what_is_cut_under_a_reader_does_not_end_the_process(tmp_path: Path) -> None:
    path = tmp_path / "draws.safetensors"
    save(path, ob.Draws({"w": np.ones((3, 100_000), np.float32)}))
    draws = load(path)
    os.truncate(path, 100)
    assert isinstance(draws, ob.Draws)
    assert draws.params["w"].sum() == 300_000
    with pytest.raises(StoreError, match="is not a safetensors file, or was cut off"):
        load(path)
