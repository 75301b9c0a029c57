"""Files that vouch for themselves, and fingerprints of what they answer."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import onebasin as ob
from onebasin.store import StoreError
from onebasin.store.fingerprint import fingerprint
from onebasin.store.sealed import Seals, is_sealed, seal, seal_posterior, unseal


def test_what_was_sealed_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.safetensors"
    arrays = {"x": np.arange(6.0).reshape(2, 3), "none": np.zeros((0, 2), np.int32)}
    seal(path, "question", arrays, {"note": "said"})
    found, notes = unseal(path, "question")
    assert notes == {"note": "said"}
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
    before = path.read_bytes()
    seal(path, "question", arrays, {"note": "said"})
    assert path.read_bytes() == before


def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    seal(path, "question", {"x": np.arange(4, dtype=np.uint8)}, {"note": "said"})
    content = path.read_bytes()
    assert is_sealed(path, "question")
    assert not is_sealed(path, "another question")
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(bytes(changed))
        # Blanks that fill the header up mean nothing.
        assert content[place : place + 1] == b" " or not is_sealed(path, "question"), place
    for length in (0, 7, 20, len(content) - 1):
        path.write_bytes(content[:length])
        assert not is_sealed(path, "question")
    path.unlink()
    assert not is_sealed(path, "question")


def test_what_was_found_whole_is_read_once(tmp_path: Path) -> None:
    """A byte is changed behind the file's times, which only who reads it again would see."""
    path = tmp_path / "file"
    seals = Seals()
    assert not seals.is_sealed(path, "question")
    seal(path, "question", {"x": np.arange(4, dtype=np.uint8)})
    with pytest.raises(StoreError, match="other inputs"):
        seals.unseal(path, "another question")
    assert seals.is_sealed(path, "question")
    times = path.stat()
    changed = path.read_bytes()[:-1] + b"\7"
    path.write_bytes(changed)
    with pytest.raises(StoreError, match="has changed"):
        seals.unseal(path, "question")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    np.testing.assert_array_equal(seals.unseal(path, "question")[0]["x"], [0, 1, 2, 7])
    with pytest.raises(StoreError, match="has changed"):
        Seals().unseal(path, "question")
    with pytest.raises(StoreError, match="other inputs"):
        seals.unseal(path, "another question")


def test_posteriors_are_sealed_with_what_belongs_to_them(tmp_path: Path) -> None:
    draws = ob.Draws({"w": jnp.arange(6.0).reshape(3, 2)}, mode=jnp.array([0, 1, 1]), info={"a": 1})
    seal_posterior(tmp_path / "draws", "q", draws, extra="here")
    found, notes = Seals().unseal_posterior(tmp_path / "draws", "q", like={"w": 0})
    assert notes["extra"] == "here"
    assert found.info == {"a": 1}
    np.testing.assert_array_equal(found.params["w"], draws.params["w"])
    np.testing.assert_array_equal(found.mode, draws.mode)


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be written"):
        seal(tmp_path / "file" / "inside", "q", {"x": np.zeros(1)})


FACTOR = 2


def doubled(x):
    return FACTOR * x


def through(x):
    return doubled(x) + 1


def activation(name: str) -> ob.Net:
    return ob.nets.mlp(hidden=(3,), outputs=2, activation=name)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        ({"a": 1}, {"a": 2}),
        (np.zeros(3), np.zeros(3, np.float32)),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (jax.random.key(0), jax.random.key(1)),
        (optax.sgd(0.1), optax.sgd(0.2)),
        (optax.adam(0.1), optax.sgd(0.1)),
        (activation("tanh"), activation("relu")),
        (lambda x: x + 1, lambda x: x + 2),
        (lambda x: x[0], lambda x: x[1]),
    ],
)
def test_what_differs_has_another_fingerprint(one, other) -> None:
    assert fingerprint(one) == fingerprint(one)
    assert fingerprint(one) != fingerprint(other)


def test_a_function_is_what_it_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(through)
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 3)
    assert fingerprint(through) != before


def test_fingerprints_are_the_same_in_every_process() -> None:
    program = """
import jax, numpy as np, optax
import onebasin as ob
from onebasin.store.fingerprint import fingerprint
x = np.ones((4, 3), np.float32)
images = np.ones((4, 8, 8, 3), np.float32)
problem = ob.Problem(ob.nets.resnet20(width=4), (images, np.zeros(4, int)))
own = {"a", "b", "c"}
print(fingerprint(problem, optax.adamw(1e-3), jax.random.key(3), lambda y: (own, y @ x), own))
"""
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
