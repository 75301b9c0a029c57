"""A folder of networks of one architecture, appended one by one over many runs.

Every network is a file that vouches for itself and says what it is: its seed, how long it was
trained, how good it is, with which sources. The files are the set. `index.json` repeats what they
say, for people and other programs, and is made anew whenever it does not fit: two processes may
append at once, and one that is killed loses at most the network that it was writing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from onebasin._core.files import FileError, check_own_folder, write_text
from onebasin._core.origin import find_commit
from onebasin.engine import claimed
from onebasin.posterior import Draws
from onebasin.store.errors import DamageWarning, StoreError
from onebasin.store.leaves import arranged, encode, named, nested, widened
from onebasin.store.manifest import now
from onebasin.store.members import Member, read_member, shortened, write_member
from onebasin.store.reading import is_whole, read_tensors, why

NETWORKS = "networks"
CLAIMS = "claims"
INDEX = "index.json"
ENDING = ".safetensors"
DTYPES = ("float16", "float32")


class CheckpointSet:
    """Networks of one architecture in a folder, any number of them, read when they are needed.

    Args:
        folder: Where they lie; it is made when the first is appended.
        dtype: How weights are kept: "float16", half the bytes, or "float32". Biases, gains and
            running statistics are kept as they are.

    Example:
        >>> import os, tempfile
        >>> import jax.numpy as jnp
        >>> from onebasin.store import CheckpointSet
        >>> networks = CheckpointSet(os.path.join(tempfile.mkdtemp(), "set"))
        >>> for seed in range(3):
        ...     params = {"w": jnp.full((2, 4), float(seed))}
        ...     networks.append(params, seed=seed, accuracy=0.5 + seed / 10)
        >>> networks
        CheckpointSet(3 networks of 8 weights, accuracy 0.500 to 0.700)
        >>> networks.draws([0, 2], like={"w": 0.0}).params["w"][:, 0, 0].tolist()
        [0.0, 2.0]
    """

    def __init__(self, folder: str | os.PathLike[str], *, dtype: str = "float16") -> None:
        if dtype not in DTYPES:
            raise StoreError(
                f"got dtype={dtype!r}, expected one of {', '.join(map(repr, DTYPES))}."
            )
        self.path = Path(folder)
        self.dtype = dtype
        self._known: dict[str, Member] = {}
        if self.path.exists() and not self.path.is_dir():
            raise StoreError(f"{self.path} is a file, expected the folder of a checkpoint set.")

    @property
    def members(self) -> tuple[Member, ...]:
        """What is known of each network, in the order in which they were appended.

        Raises:
            StoreError: If a file cannot be read as one of the set; it names the file.
        """
        return tuple(self._look(name) for name in self._names())

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seed of each network."""
        return tuple(member.seed for member in self.members)

    def __len__(self) -> int:
        return len(self._names())

    def append(
        self,
        params: Any,
        *,
        seed: int,
        epochs: float | None = None,
        accuracy: float | None = None,
        config: Any = None,
        **notes: Any,
    ) -> None:
        """Adds a network.

        Args:
            params: Its parameters, any pytree of arrays; running statistics with them.
            seed: The seed that it was trained from.
            epochs: How long it was trained.
            accuracy: Its share of right answers.
            config: What it was asked to be, all of it: what JSON can hold.
            **notes: Anything else that is known of it.

        Raises:
            StoreError: If it is of another architecture than those that are there, is not finite,
                or cannot be written; what is there stays as it is.
        """
        where = f"the checkpoint set in {self.path}"
        arrays, _ = encode(named(params, "the parameters"), where)
        _check_finite(arrays, where)
        self._check_fits(arrays, where)
        about = {
            "seed": int(seed),
            "epochs": epochs,
            "accuracy": None if accuracy is None else float(accuracy),
            "commit": find_commit(),
            "config": config,
            "created": now(),
            "notes": notes,
        }
        # What no two processes choose alike, behind a number by which they are in order.
        name = f"network-{self._next():06d}-{secrets.token_hex(4)}{ENDING}"
        write_member(self._networks() / name, shortened(arrays, self.dtype, where), about)
        self._write_index()

    def draws(self, which: Any = slice(None), like: Any = None, *, damaged: str = "error") -> Draws:
        """Some networks as `Draws`, each a mode of its own, in float32.

        Args:
            which: Which of them: a slice, numbers, or truth values; all by default.
            like: Parameters of one network, for their structure; nested dictionaries without it.
            damaged: With "skip", networks whose bytes have changed are left out with a warning.

        Returns:
            The networks, with the statistics "seed", "epochs" and "accuracy" where they are known.

        Raises:
            StoreError: If there are none, a file has changed since it was written, or the networks
                are not of this model.
        """
        if damaged not in ("error", "skip"):
            raise StoreError(f"got damaged={damaged!r}, expected 'error' or 'skip'.")
        members = self.members
        chosen = np.atleast_1d(np.arange(len(members))[which]).tolist()
        found = [(number, self._read(members[number], damaged)) for number in chosen]
        whole = [(number, arrays) for number, arrays in found if arrays is not None]
        if not whole:
            raise StoreError(f"the checkpoint set in {self.path} has no such networks.")
        stacked = {name: jnp.stack([arrays[name] for _, arrays in whole]) for name in whole[0][1]}
        where = f"the checkpoint set in {self.path}"
        params = nested(stacked) if like is None else arranged(stacked, like, where)
        numbers = [number for number, _ in whole]
        return Draws(
            params,
            mode=np.asarray(numbers, np.int32),
            statistics=_statistics([members[number] for number in numbers]),
        )

    def blocks(self, size: int, which: Any = slice(None), like: Any = None) -> Iterator[Draws]:
        """Some networks, so many at a time: no more of them are in memory.

        Args:
            size: How many at a time.
            which: Which of them; all by default.
            like: Parameters of one network, for their structure.
        """
        if size < 1:
            raise StoreError(f"got size={size}, expected at least one network at a time.")
        chosen = np.atleast_1d(np.arange(len(self))[which])
        for start in range(0, len(chosen), size):
            yield self.draws(chosen[start : start + size], like)

    @contextlib.contextmanager
    def claim(self, seed: int) -> Iterator[bool]:
        """The right to train the network of a seed, for as long as the block lasts.

        Of several processes one gets it; it ends with the process, however that ends.

        Args:
            seed: The seed.

        Yields:
            Whether it was got: not where another process has it, or the network is there.
        """
        try:
            folder = check_own_folder(self.path / CLAIMS)
        except FileError as error:
            raise StoreError(f"{error}: name another folder.") from error
        with claimed(folder / f"seed-{int(seed)}") as got:
            yield got and int(seed) not in self.seeds

    def check(self) -> None:
        """Reads every file and compares it with its checksum.

        Raises:
            StoreError: If one has changed; it names all that have.
        """
        bad = []
        for name in self._names():
            try:
                self._read(self._look(name), "error")
            except StoreError as error:
                bad.append(str(error).rstrip("."))
        if bad:
            raise StoreError(
                "; ".join(bad) + ": remove what is bad, or read what is left with damaged='skip'."
            )

    def __repr__(self) -> str:
        members = self.members
        if not members:
            return "CheckpointSet(empty)"
        weights = sum(int(np.prod(shape)) for shape in members[0].leaves.values())
        said = [m.accuracy for m in members if m.accuracy is not None]
        rest = f", accuracy {min(said):.3f} to {max(said):.3f}" if said else ""
        return f"CheckpointSet({len(members):,} networks of {weights:,} weights{rest})"

    def _networks(self) -> Path:
        try:
            return check_own_folder(self.path / NETWORKS)
        except FileError as error:
            raise StoreError(f"{error}: name another folder.") from error

    def _names(self) -> list[str]:
        folder = self._networks()
        try:
            names = os.listdir(folder) if folder.exists() else []
        except OSError as error:
            raise StoreError(f"the folder {folder} {why(error)}.") from error
        return sorted(n for n in names if n.endswith(ENDING) and not n.startswith("."))

    def _look(self, name: str) -> Member:
        if name not in self._known:
            try:
                self._known[name] = read_member(self._networks() / name)
            except StoreError as error:
                raise StoreError(f"{error}: remove it, the other networks are whole.") from error
        return self._known[name]

    def _next(self) -> int:
        numbers = [n.split("-")[1] for n in self._names() if n.count("-") > 1]
        return max((int(n) + 1 for n in numbers if n.isdigit()), default=0)

    def _check_fits(self, arrays: dict[str, np.ndarray], where: str) -> None:
        names = self._names()
        there = self._look(names[0]).leaves if names else {}
        here = {name: array.shape for name, array in arrays.items()}
        for name in [*there, *here] if names else ():
            if there.get(name) != here.get(name):
                raise StoreError(
                    f"{where} has networks whose leaf {name!r} has shape "
                    f"{there.get(name, 'none')}, and this one's has {here.get(name, 'none')}: "
                    "networks of another architecture need a folder of their own."
                )

    def _read(self, member: Member, damaged: str) -> dict[str, jax.Array] | None:
        path = self._networks() / member.file
        try:
            arrays, metadata = read_tensors(path)
            clause = "" if is_whole(arrays, metadata) else "has changed since it was written"
        except (OSError, FileError) as error:
            clause = why(error)
        except StoreError as error:
            clause = str(error).removeprefix(f"the file {path} ")
        if not clause:
            return {name: widened(array) for name, array in arrays.items()}
        message = f"the file {path} {clause}"
        if damaged == "error":
            raise StoreError(
                f"{message}: restore or remove it, or read the others with damaged='skip'."
            )
        warnings.warn(f"{message}: it is left out.", DamageWarning, stacklevel=3)
        return None

    def _write_index(self) -> None:
        """Writes down what the files say; what cannot be read is not in it."""
        found = []
        for name in self._names():
            with contextlib.suppress(StoreError):
                found.append(dataclasses.asdict(self._look(name)))
        leaves = found[0]["leaves"] if found else {}
        for entry in found:
            del entry["leaves"]
        content = {"format": "onebasin-set", "version": 1, "leaves": leaves, "networks": found}
        # Whoever comes later writes it anew: that it cannot be written now harms nothing.
        with contextlib.suppress(OSError):
            write_text(self.path / INDEX, json.dumps(content, indent=1))


def _check_finite(arrays: dict[str, np.ndarray], where: str) -> None:
    for name, array in arrays.items():
        if jax.dtypes.issubdtype(array.dtype, np.inexact) and not np.isfinite(array).all():
            raise StoreError(
                f"{where} takes no network with NaN or infinity, and the leaf {name!r} has one: "
                "train it again with a smaller learning rate."
            )


def _statistics(members: Sequence[Member]) -> dict[str, np.ndarray]:
    found = {"seed": np.asarray([m.seed for m in members])}
    for name in ("epochs", "accuracy"):
        values = [getattr(m, name) for m in members]
        if all(value is not None for value in values):
            found[name] = np.asarray(values, np.float32)
    return found
