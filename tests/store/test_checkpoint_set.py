"""Networks appended one by one: nothing that was there is ever lost, or taken for another."""

import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

import onebasin as ob
from onebasin._core.origin import VARIABLE, find_commit
from onebasin.store import CheckpointSet, DamageWarning, StoreError


def network(seed, width=4):
    a, b = jax.random.split(jax.random.key(seed))
    return {
        "params": {"kernel": jax.random.normal(a, (3, width)), "bias": jnp.full(width, 1e-6)},
        "batch_stats": {"mean": jax.random.normal(b, (width,))},
    }


@pytest.fixture
def networks(tmp_path):
    found = CheckpointSet(tmp_path / "set")
    for seed in (3, 1, 2):
        found.append(network(seed), seed=seed, epochs=5, accuracy=seed / 10, config={"wd": 0.1})
    return found


def files(networks):
    return sorted((networks.path / "networks").iterdir())


def test_networks_come_back_in_order_with_what_is_known_of_them(networks):
    again = CheckpointSet(networks.path)
    assert again.seeds == (3, 1, 2)
    assert len(again) == 3
    draws = again.draws(like=network(0))
    assert draws.statistics["seed"].tolist() == [3, 1, 2]
    np.testing.assert_allclose(draws.statistics["accuracy"], [0.3, 0.1, 0.2], rtol=1e-6)
    assert len(set(np.asarray(draws.mode).tolist())) == 3
    for number, seed in enumerate((3, 1, 2)):
        expected, found = network(seed), draws[number]
        kernel = np.asarray(expected["params"]["kernel"])
        assert (found["params"]["kernel"] == kernel.astype(np.float16)).all()
        assert found["params"]["kernel"].dtype == np.float32
        # What half precision would lose is small, and kept whole.
        for part, name in (("params", "bias"), ("batch_stats", "mean")):
            assert (found[part][name] == expected[part][name]).all()
    member = again.members[0]
    assert (member.config, member.epochs, member.notes) == ({"wd": 0.1}, 5, {})
    again.check()


def test_single_precision_is_kept_where_it_is_asked_for(tmp_path):
    networks = CheckpointSet(tmp_path, dtype="float32")
    networks.append(network(1), seed=1)
    found = networks.draws(like=network(0))[0]
    assert jax.tree.all(jax.tree.map(np.array_equal, found, network(1)))


def test_any_part_is_read_and_no_more_at_a_time_than_asked(networks):
    like = network(0)
    assert networks.draws([2], like).statistics["seed"].tolist() == [2]
    assert networks.draws(slice(1, None), like).statistics["seed"].tolist() == [1, 2]
    accuracy = np.array([m.accuracy for m in networks.members])
    assert networks.draws(accuracy > 0.15, like).statistics["seed"].tolist() == [3, 2]
    blocks = list(networks.blocks(2, like=like))
    assert [len(block) for block in blocks] == [2, 1]
    joined = ob.Draws.concatenate(blocks)
    assert jax.tree.all(
        jax.tree.map(np.array_equal, joined.params, networks.draws(like=like).params)
    )


def test_other_programs_read_a_network(networks):
    arrays = safetensors.numpy.load_file(files(networks)[0])
    assert set(arrays) == {"params/kernel", "params/bias", "batch_stats/mean"}
    index = json.loads((networks.path / "index.json").read_text())
    assert [entry["seed"] for entry in index["networks"]] == [3, 1, 2]
    assert index["leaves"]["params/kernel"] == [3, 4]


@pytest.mark.parametrize("what", ["lost", "cut", "other"])
def test_the_index_is_made_anew_from_the_files(networks, what):
    index = networks.path / "index.json"
    whole = index.read_text()
    if what == "lost":
        index.unlink()
    else:
        index.write_text(whole[:50] if what == "cut" else '{"networks": []}')
    again = CheckpointSet(networks.path)
    assert again.seeds == (3, 1, 2)
    again.append(network(9), seed=9)
    assert [e["seed"] for e in json.loads(index.read_text())["networks"]] == [3, 1, 2, 9]


@pytest.mark.parametrize("how", ["cut", "bit", "empty", "gone"])
def test_a_damaged_network_costs_itself_alone(networks, how):
    path = files(networks)[1]
    content = bytearray(path.read_bytes())
    if how == "cut":
        content = content[: len(content) // 2]
    content[-1:] = bytes([content[-1] ^ 1]) if how == "bit" else content[-1:]
    path.write_bytes(b"" if how == "empty" else bytes(content))
    if how == "gone":
        path.unlink()
        assert CheckpointSet(networks.path).seeds == (3, 2)
        return
    with pytest.raises(StoreError, match=path.name):
        networks.draws(like=network(0))
    with pytest.raises(StoreError, match=path.name):
        networks.check()
    with pytest.warns(DamageWarning, match=path.name):
        left = networks.draws(like=network(0), damaged="skip")
    assert left.statistics["seed"].tolist() == [3, 2]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (lambda: network(0, width=5), r"'batch_stats/mean'.*\(4,\).*\(5,\).*another architecture"),
        (lambda: {"w": jnp.ones(3)}, r"'batch_stats/mean'.*none.*another architecture"),
        (lambda: jax.tree.map(lambda x: x / 0, network(0)), r"NaN or infinity.*'batch_stats"),
        (lambda: jax.tree.map(lambda x: 1e6 + x, network(0)), r"float16.*dtype='float32'"),
        (lambda: {}, "no leaves"),
    ],
)
def test_what_does_not_belong_there_is_refused(networks, params, message):
    before = {path: path.read_bytes() for path in files(networks)}
    with pytest.raises(StoreError, match=message):
        networks.append(params(), seed=7)
    assert {path: path.read_bytes() for path in files(networks)} == before


def test_a_full_disk_loses_nothing(networks, monkeypatch):
    before = {path: path.read_bytes() for path in files(networks)}

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"No space left.*whole"):
        networks.append(network(7), seed=7)
    monkeypatch.undo()
    assert {path: path.read_bytes() for path in files(networks)} == before
    networks.append(network(7), seed=7)
    assert CheckpointSet(networks.path).seeds == (3, 1, 2, 7)


APPEND = """
import sys, jax.numpy as jnp
from onebasin.store import CheckpointSet
networks = CheckpointSet(sys.argv[1])
for seed in range(int(sys.argv[2]), int(sys.argv[3])):
    networks.append({"w": jnp.full((64, 64), float(seed))}, seed=seed)
"""


def append(folder, first, last):
    return subprocess.Popen([sys.executable, "-c", APPEND, str(folder), str(first), str(last)])


def test_two_processes_append_at_once(tmp_path):
    writers = [append(tmp_path, 0, 12), append(tmp_path, 12, 24)]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    networks = CheckpointSet(tmp_path)
    assert sorted(networks.seeds) == list(range(24))
    draws = networks.draws(like={"w": 0.0})
    assert (draws.params["w"][:, 0, 0] == draws.statistics["seed"]).all()
    networks.append({"w": jnp.ones((64, 64))}, seed=99)
    index = json.loads((tmp_path / "index.json").read_text())
    assert len(index["networks"]) == 25


def test_a_killed_writer_loses_at_most_its_last_network(tmp_path):
    writer = append(tmp_path, 0, 100_000)
    deadline = time.monotonic() + 60
    while len(CheckpointSet(tmp_path)) < 5 and time.monotonic() < deadline:
        time.sleep(0.05)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    networks = CheckpointSet(tmp_path)
    count = len(networks)
    assert count >= 5
    networks.check()
    assert networks.seeds == tuple(range(count))


def test_a_seed_is_claimed_by_one_and_until_it_is_there(networks):
    other = CheckpointSet(networks.path)
    with networks.claim(7) as first, other.claim(7) as second, other.claim(8) as third:
        assert (first, second, third) == (True, False, True)
        networks.append(network(7), seed=7)
    with other.claim(7) as done, other.claim(8) as left:
        assert (done, left) == (False, True)


def test_a_claim_ends_with_its_process(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    holder = context.Process(target=hold, args=(tmp_path, ready))
    holder.start()
    assert ready.wait(60)
    networks = CheckpointSet(tmp_path)
    with networks.claim(1) as got:
        assert not got
    holder.kill()
    holder.join()
    with networks.claim(1) as got:
        assert got


def hold(folder, ready):
    with CheckpointSet(folder).claim(1):
        ready.set()
        time.sleep(60)


def test_links_lead_nowhere(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "networks").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "set" / "claims").symlink_to(tmp_path / "elsewhere")
    networks = CheckpointSet(tmp_path / "set")
    with pytest.raises(StoreError, match="is a link"):
        networks.append(network(0), seed=0)
    with pytest.raises(StoreError, match="is a link"), networks.claim(1):
        pass
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="expected the folder"):
        CheckpointSet(tmp_path / "file")
    with pytest.raises(StoreError, match="dtype='half'"):
        CheckpointSet(tmp_path, dtype="half")
    assert repr(CheckpointSet(tmp_path / "none")) == "CheckpointSet(empty)"
    with pytest.raises(StoreError, match="no such networks"):
        CheckpointSet(tmp_path / "none").draws()


def test_every_network_says_with_which_sources_it_was_made(networks):
    found = find_commit()
    assert networks.members[0].commit == found
    inside = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=os.path.dirname(ob.__file__),
        capture_output=True,
        text=True,
    )
    if inside.returncode == 0:
        assert found is not None
        assert found.partition("+")[0] == inside.stdout.strip()


def test_sources_that_are_no_checkout_may_be_told_of(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(VARIABLE, "abc")
    find_commit.cache_clear()
    assert find_commit() == "abc"
    monkeypatch.delenv(VARIABLE)
    find_commit.cache_clear()
    assert find_commit() is None
    find_commit.cache_clear()
