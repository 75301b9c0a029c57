"""A run on disk: what is kept comes back exactly, together or not at all."""

import concurrent.futures
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

import onebasin as ob
from onebasin.store import Run, StoreError


class State(NamedTuple):
    params: Any
    key: jax.Array
    step: int


CONFIG = {"method": "hmc", "prior": {"scale": 0.1}, "hidden": (5, 3)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "one"


@pytest.fixture
def run(folder: Path) -> Run:
    return Run.create(folder, CONFIG, {"key": 3})


def shard(start: int, count: int) -> dict[str, Any]:
    numbers = np.arange(start, start + count, dtype=np.float32)
    return {"params": {"w": numbers[:, None] * np.ones(2, np.float32), "b": numbers}}


def leaves(tree: Any) -> list[Any]:
    return [
        jax.random.key_data(x) if ob.store.leaves.is_key(x) else x for x in jax.tree.leaves(tree)
    ]


def alike(a: Any, b: Any) -> bool:
    structures: list[Any] = [jax.tree.structure(a), jax.tree.structure(b)]
    return bool(structures[0] == structures[1])


EXACT: list[Any] = [
    {"half": jnp.array([1.5, jnp.nan], jnp.bfloat16), "small": jnp.array([2.5], jnp.float16)},
    {"count": jnp.array(7), "flag": jnp.array([True, False]), "tiny": jnp.array([-3], jnp.int8)},
    {"none": jnp.zeros((0, 3)), "scalar": jnp.array(-0.0), "nested": [jnp.ones(2), (jnp.ones(1),)]},
    {"double": np.array([1 / 3]), "long": np.array([2**60]), "number": np.float64(0.1)},
    {"transposed": np.arange(6.0).reshape(2, 3).T, "complex": np.array([1j], np.complex64)},
    (3, 0.1, True),
    State({"w": jnp.ones(3)}, jax.random.key(5), 4),
    {"keys": jax.random.split(jax.random.key(1, impl="rbg"), 3)},
    jnp.arange(3),
]


@pytest.mark.parametrize("tree", EXACT, ids=range(len(EXACT)))
def test_a_state_comes_back_bit_for_bit(run: Run, tree: Any) -> None:
    with run.transaction() as t:
        t.put("state", tree)
    again = Run.open(run.path).get("state", like=tree)
    assert alike(again, tree)
    for old, new in zip(jax.tree.leaves(tree), jax.tree.leaves(again), strict=True):
        assert type(old) is type(new) or isinstance(old, np.generic)
        assert getattr(old, "dtype", None) == getattr(new, "dtype", None)
    for old, new in zip(leaves(tree), leaves(again), strict=True):
        assert np.asarray(old).tobytes() == np.asarray(new).tobytes()


def test_shapes_stand_for_arrays_and_names_for_structure(run: Run) -> None:
    tree: dict[str, Any] = {"a": {"w": jnp.ones((2, 3))}, "key": jax.random.key(2)}
    with run.transaction() as t:
        t.put("state", tree)
    again = run.get("state", like=jax.eval_shape(lambda: tree))
    assert isinstance(again["a"]["w"], jax.Array)
    assert again["key"].dtype == tree["key"].dtype
    assert run.get("state")["a"]["w"].tolist() == [[1.0] * 3] * 2


def test_double_precision_is_not_narrowed_silently(run: Run) -> None:
    with run.transaction() as t:
        t.put("state", {"x": np.array([1 / 3])})
    with pytest.raises(StoreError, match="switch on jax_enable_x64"):
        run.get("state", like={"x": jax.ShapeDtypeStruct((1,), np.dtype(np.float64))})


@pytest.mark.parametrize(
    ("like", "said"),
    [
        ({"w": jnp.ones(3)}, r"'w' of shape \(2,\) and type float32, and `like` expects \(3,\)"),
        ({"w": jnp.ones(2, jnp.int32)}, "expects .2,. and int32"),
        ({"v": jnp.ones(2)}, "has no leaf 'v'"),
        ({"w": jnp.ones(2), "v": jnp.ones(2)}, "has no leaf 'v'"),
        ({}, "has a leaf 'w'"),
        ({"w": jax.random.key(0)}, "expects .. and key"),
    ],
)
def test_a_state_of_another_kind_is_named(run: Run, like: Any, said: str) -> None:
    with run.transaction() as t:
        t.put("state", {"w": jnp.ones(2)})
    with pytest.raises(StoreError, match=said):
        run.get("state", like=like)


def test_a_stream_is_read_in_part(run: Run) -> None:
    for start, count in ((0, 3), (3, 4), (7, 1)):
        with run.transaction() as t:
            t.append("draws", shard(start, count))
    stream = Run.open(run.path).stream("draws")
    assert (len(stream), stream.num_shards) == (8, 3)
    assert stream.paths == ("params/b", "params/w")
    everything = np.arange(8)
    picks: list[Any] = [
        slice(None),
        slice(1, 3),
        slice(2, 8),
        slice(-1, None),
        slice(None, None, -2),
        slice(5, 5),
        [7, 0, 4],
        everything % 3 == 0,
    ]
    for pick in picks:
        assert stream[pick]["params"]["b"].tolist() == everything[pick].tolist()
        assert stream.leaf("params/w", pick)[:, 1].tolist() == everything[pick].tolist()
    assert stream[-1]["params"]["w"].tolist() == [7, 7]
    assert [float(draw["params"]["b"]) for draw in stream] == everything.tolist()
    view = run.stream("draws", mapped=True)[3:6]["params"]["w"]
    assert not view.flags.owndata
    assert not view.flags.writeable
    like = {"params": {"b": 0, "w": 0}}
    assert alike(run.stream("draws", like)[0], like)
    with pytest.raises(StoreError, match="no leaf 'w'; it has params/b, params/w"):
        stream.leaf("w")
    with pytest.raises(IndexError, match="no draw 8: there are 8"):
        stream[8]


def test_draws_come_back(run: Run) -> None:
    params = {"w": jnp.arange(6.0).reshape(3, 2), "b": jnp.arange(3)}
    statistics = {"accepted": jnp.ones(3, bool)}
    draws = ob.Draws(params, jnp.array([0, 0, 1]), jnp.arange(3.0), statistics)
    with run.transaction() as t:
        t.append("draws", draws[:2])
        t.append("draws", draws[2:])
        t.append("bare", ob.Draws(params))
    again = run.draws("draws", like={"w": 0, "b": 0})
    assert alike(again, draws)
    assert all(map(np.array_equal, jax.tree.leaves(again), jax.tree.leaves(draws)))
    assert run.draws("bare").statistics is None
    with run.transaction() as t:
        t.append("other", {"w": np.ones(3)})
    with pytest.raises(StoreError, match="no leaves under 'params'"):
        run.draws("other")


def test_keys_in_a_stream(run: Run) -> None:
    keys = jax.random.split(jax.random.key(0), 4)
    with run.transaction() as t:
        t.append("keys", {"key": keys})
    again = run.stream("keys")[1:3]["key"]
    assert jnp.array_equal(jax.random.key_data(again), jax.random.key_data(keys[1:3]))


def test_a_transaction_happens_or_does_not(run: Run) -> None:
    with run.transaction() as t:
        t.append("draws", shard(0, 2))
        t.put("state", {"x": 1})
        t.note(done=1)
    before = sorted(run.path.rglob("*"))
    with pytest.raises(KeyError), run.transaction() as t:  # noqa: PT012
        t.append("draws", shard(2, 2))
        t.put("state", {"x": 2})
        t.note(done=2)
        raise KeyError
    assert sorted(run.path.rglob("*")) == before
    for seen in (run, Run.open(run.path)):
        assert (len(seen.stream("draws")), seen.notes) == (2, {"done": 1})
        assert seen.get("state", like={"x": 0}) == {"x": 1}
    with run.transaction() as t:
        t.put("state", {"x": 3})
    names = [f"state-00000{number}.safetensors" for number in (1, 2, 3)]
    # That of the transaction before is kept to go back to.
    assert sorted(path.name for path in (run.path / "states").iterdir()) == names[:2]
    with run.transaction() as t:
        t.put("state", {"x": 4})
    assert sorted(path.name for path in (run.path / "states").iterdir()) == names[1:]
    assert run.transactions == 3
    run.check()


def test_a_full_disk_leaves_what_was_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with run.transaction() as t:
        t.append("draws", shard(0, 2))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("onebasin.store.transaction.write_tensors", full)
        with pytest.raises(StoreError, match=r"24 bytes.*No space"), run.transaction() as t:
            t.append("draws", shard(2, 2))
    with monkeypatch.context() as patch:
        patch.setattr("onebasin.store.manifest_file.replacing", full)
        with pytest.raises(StoreError, match=r"manifest\.json cannot"), run.transaction() as t:
            t.append("draws", shard(2, 2))
    with pytest.raises(StoreError, match="was closed"), run.transaction():
        pass
    again = Run.continue_or_create(run.path, CONFIG, {"key": 3})
    assert len(again.stream("draws")) == 2
    assert len(list((run.path / "streams").iterdir())) == 1


def test_the_manifest_says_what_was_done(run: Run) -> None:
    with run.transaction() as t:
        t.append("draws", shard(0, 2))
        t.note(loss=[jnp.array(0.5), np.float32(0.25)], rate=np.nan)
    content = json.loads((run.path / "manifest.json").read_text())
    assert content["config"] == {"method": "hmc", "prior": {"scale": 0.1}, "hidden": [5, 3]}
    assert content["seeds"] == {"key": 3}
    assert content["versions"][0]["onebasin"] == ob.__version__
    assert {"jax", "numpy", "python", "platform", "device"} < set(content["versions"][0])
    (entry,) = content["streams"]["draws"]["shards"]
    path = run.path / entry["file"]
    assert path.stat().st_size == entry["bytes"]
    assert set(load_file(path)) == {"params/w", "params/b"}
    assert run.notes["loss"] == [0.5, 0.25]
    assert np.isnan(Run.open(run.path).notes["rate"])


def test_the_same_goes_on_and_another_is_refused(folder: Path) -> None:
    first = Run.continue_or_create(folder, CONFIG, {"key": 3})
    with first.transaction() as t:
        t.append("draws", shard(0, 2))
    with pytest.raises(StoreError, match=r"already a run in .*one: continue it"):
        Run.create(folder, CONFIG, {"key": 3})
    again = Run.continue_or_create(folder, CONFIG, {"key": 3})
    assert again.id == first.id
    assert len(again.stream("draws")) == 2
    with pytest.raises(StoreError, match="opened for writing again"), first.transaction():
        pass
    with again.transaction() as t:
        t.note(done=1)
    other = {**CONFIG, "prior": {"scale": 0.2}}
    with pytest.raises(StoreError, match=r"config\.prior\.scale is 0\.1 there and 0\.2 here"):
        Run.continue_or_create(folder, other, {"key": 3})
    with pytest.raises(StoreError, match=r"seeds\.key is 3 there and 4 here"):
        Run.continue_or_create(folder, CONFIG, {"key": 4})
    with pytest.raises(StoreError, match=r"only here is config\.steps given \(5\)"):
        Run.continue_or_create(folder, {**CONFIG, "steps": 5}, {"key": 3})
    with again.transaction() as t:
        t.note(done=2)


def test_leftovers_are_removed_and_nothing_else(run: Run) -> None:
    with run.transaction() as t:
        t.append("draws", shard(0, 2))
    for name in ("draws-000001.safetensors", ".draws-000001.safetensors.7-ab.partial", "mine.txt"):
        (run.path / "streams" / name).touch()
    (run.path / ".manifest.json.7-ab.partial").touch()
    Run.open(run.path)
    assert len(list((run.path / "streams").iterdir())) == 4
    run.close()
    Run.continue_or_create(run.path, CONFIG, {"key": 3})
    names = {path.name for path in (run.path / "streams").iterdir()}
    assert names == {"draws-000000.safetensors", "mine.txt"}
    assert not list(run.path.glob("*.partial"))


HOLD = """
import sys
from onebasin.store import Run
run = Run.continue_or_create(sys.argv[1], {})
print("ready", flush=True)
sys.stdin.read()
"""


def test_one_process_writes_at_a_time(folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        with pytest.raises(StoreError, match="being written by another process"):
            Run.continue_or_create(folder, {})
        assert Run.open(folder).notes == {}
        other.kill()
    with Run.continue_or_create(folder, {}).transaction() as t:
        t.note(mine=True)


def test_a_run_is_read_while_it_is_written(folder: Path) -> None:
    run = Run.create(folder, {})

    def write() -> None:
        for step in range(60):
            with run.transaction() as t:
                t.append("draws", shard(step, 1))
                t.put("state", {"step": step})

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        seen = [0]
        while not writing.done():
            opened = Run.open(folder)
            seen.append(len(opened.stream("draws")) if opened.streams() else 0)
        writing.result()
    assert seen == sorted(seen)
    assert len(Run.open(folder).stream("draws")) == 60


BAD: list[tuple[Any, str]] = [
    (lambda t: t.append("a/b", shard(0, 1)), "got the name 'a/b'"),
    (lambda t: t.append("draws", {}), "no leaves"),
    (lambda t: t.append("draws", {"x": 1.0}), "'x' for the stream 'draws' is a scalar"),
    (lambda t: t.append("draws", {"a": np.ones(2), "b": np.ones(3)}), "'b' .* has 3 draws"),
    (lambda t: t.append("draws", {"params": np.ones(2)}), "'params/b' .* is missing, and in the"),
    (lambda t: t.append("draws", {"params": {"w": np.ones(2), "b": np.ones(2)}}), "is F64 of sha"),
    (lambda t: t.put("state", {"x": "text"}), "'x', which is of type <U4"),
    (lambda t: t.put("state", {"x": object()}), "'x', which is of type object"),
    (lambda t: t.note(x={"y": object()}), r"x\.y is object <object.*expected what JSON"),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_what_cannot_be_kept_is_named(run: Run, case: int) -> None:
    with run.transaction() as t:
        t.append("draws", shard(0, 1))
        t.append("draws", shard(0, 0))
    change, said = BAD[case]
    with pytest.raises(StoreError, match=said) as caught, run.transaction() as t:
        change(t)
    assert "\n" not in str(caught.value)
    assert len(Run.open(run.path).stream("draws")) == 1


def test_what_is_not_there_is_named(run: Run, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no state 'x'; it has none"):
        run.get("x")
    with pytest.raises(StoreError, match="no stream 'draws'; it has none"):
        run.stream("draws")
    with pytest.raises(StoreError, match=r"there is no run in .*nothing"):
        Run.open(tmp_path / "nothing")
    with pytest.raises(StoreError, match="opened for reading"), Run.open(run.path).transaction():
        pass
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"no run can be written in .*file"):
        Run.create(tmp_path / "file", {})
    with pytest.raises(StoreError, match="got damaged='no'"):
        Run.open(run.path, damaged="no")
