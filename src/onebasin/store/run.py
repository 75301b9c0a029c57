"""A run on disk: its config, its states and its draws, which survive the process."""

from __future__ import annotations

import contextlib
import copy
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onebasin.posterior import Draws
from onebasin.store import opening
from onebasin.store.damage import fault, faults, sentence
from onebasin.store.datatree import to_datatree
from onebasin.store.errors import DamageWarning, StoreError
from onebasin.store.leaves import decode, key_names, nested, restore
from onebasin.store.lock import Lock
from onebasin.store.manifest import NAME, Manifest, plain
from onebasin.store.opening import Damaged
from onebasin.store.posteriors import draws_of
from onebasin.store.stream import StoredStream
from onebasin.store.tensors import parse, read_header
from onebasin.store.transaction import Transaction

if TYPE_CHECKING:
    import xarray


class Run:
    """A folder with everything that a run has made so far.

    What belongs to the run is what its manifest names, and the manifest is replaced in one step at
    the end of each transaction: a process that is killed at any moment leaves a run that opens and
    holds every transaction that was finished. One process writes, any number read.

    Make one with `create`, `open` or `continue_or_create`.

    Example:
        >>> import os, tempfile
        >>> import numpy as np
        >>> from onebasin.store import Run
        >>> folder = os.path.join(tempfile.mkdtemp(), "run")
        >>> run = Run.continue_or_create(folder, config={"steps": 4}, seeds={"key": 0})
        >>> for step in range(run.notes.get("done", 0), 4):
        ...     with run.transaction() as t:
        ...         t.append("draws", {"w": np.full((2, 3), step)})
        ...         t.put("state", {"step": step})
        ...         t.note(done=step + 1)
        >>> again = Run.open(folder)
        >>> again.notes, again.get("state", like={"step": 0})
        ({'done': 4}, {'step': 3})
        >>> again.stream("draws")
        StoredStream('draws': 8 draws in 4 shards, leaves w)
        >>> again.stream("draws")[3:5]["w"].tolist()
        [[1, 1, 1], [2, 2, 2]]
    """

    def __init__(
        self, folder: Path, manifest: Manifest, lock: Lock | None = None, damaged: Damaged = "error"
    ) -> None:
        self.path = folder
        self._manifest = manifest
        self._lock = lock
        self._damaged = damaged

    @classmethod
    def create(cls, path: str | os.PathLike[str], config: Any, seeds: Any = None) -> Run:
        """Begins a run in a folder, which is made if it is not there.

        Args:
            path: The folder.
            config: What the run is asked to do, all of it: what JSON can hold.
            seeds: Its random seeds.

        Raises:
            StoreError: If a run lies there already, or the folder cannot be made.
        """
        folder = Path(path)
        manifest = Manifest.new(plain(config, "config"), plain(seeds, "seeds"))
        opening.check_free(folder)
        lock = opening.lock(folder)
        opening.check_free(folder)
        manifest.write(folder)
        return cls(folder, manifest, lock)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, damaged: Damaged = "error") -> Run:
        """Opens a run for reading, after checking the size and header of every file.

        Args:
            path: The folder.
            damaged: With "skip", damage is a warning, and what is still good can be read. Where the
                manifest itself cannot be trusted the files speak for themselves.

        Raises:
            StoreError: If there is no run, or a file is not as the manifest says; it names all.
        """
        opening.check_damaged(damaged)
        return cls(Path(path), opening.for_reading(Path(path), damaged), None, damaged)

    @classmethod
    def continue_or_create(
        cls, path: str | os.PathLike[str], config: Any, seeds: Any = None
    ) -> Run:
        """Goes on with the run in a folder if it was asked to do the same, or begins one.

        What an interrupted process left half done is removed.

        Args:
            path: The folder.
            config: What the run is asked to do.
            seeds: Its random seeds.

        Raises:
            StoreError: If the run there has another config or other seeds (it names the first
                difference), is damaged, or is being written by another process.
        """
        folder = Path(path)
        if not (folder / NAME).exists():
            return cls.create(path, config, seeds)
        asked = {"config": plain(config, "config"), "seeds": plain(seeds, "seeds")}
        opening.for_writing(folder, asked)
        lock = opening.lock(folder)
        manifest = opening.for_writing(folder, asked)
        opening.remove_leftovers(folder, manifest)
        return cls(folder, manifest, lock)

    @property
    def id(self) -> str:
        """A random name, which every file of the run carries."""
        return self._manifest.run

    @property
    def config(self) -> Any:
        """What the run was asked to do."""
        return copy.deepcopy(self._manifest.config)

    @property
    def seeds(self) -> Any:
        """Its random seeds."""
        return copy.deepcopy(self._manifest.seeds)

    @property
    def versions(self) -> tuple[dict[str, str], ...]:
        """What it was made with: one entry, and one more each time it went on with another."""
        return copy.deepcopy(self._manifest.versions)

    @property
    def notes(self) -> dict[str, Any]:
        """The values that were noted."""
        return copy.deepcopy(self._manifest.notes)

    @property
    def transactions(self) -> int:
        """How many transactions were finished."""
        return self._manifest.transactions

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Changes that happen together when the block ends; none happens if it raises.

        Raises:
            StoreError: If the run was opened for reading, or is being written elsewhere.
        """
        if self._lock is None:
            raise StoreError(
                f"the run in {self.path} was opened for reading: open it with "
                "Run.continue_or_create to write."
            )
        if not self._lock.held:
            raise StoreError(
                f"the run in {self.path} was closed, or opened for writing again since: use the "
                "one that was opened last."
            )
        transaction = Transaction(self.path, self._manifest)
        try:
            yield transaction
        except BaseException:
            opening.remove_leftovers(self.path, self._manifest)
            raise
        self._commit(transaction.result())

    def close(self) -> None:
        """Lets other processes write; so does the end of this one."""
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def has(self, name: str) -> bool:
        """Whether there is a state of this name."""
        return name in self._manifest.states

    def states(self) -> tuple[str, ...]:
        """The names of the states."""
        return tuple(self._manifest.states)

    def streams(self) -> tuple[str, ...]:
        """The names of the streams."""
        return tuple(self._manifest.streams)

    def get(self, name: str, like: Any = None) -> Any:
        """Restores a state exactly, after checking its hash.

        Args:
            name: The state.
            like: A tree of the same structure, shapes and types: JAX arrays come back where it has
                them (or shapes of them), NumPy arrays and numbers likewise. Without it a nested
                dictionary of NumPy arrays comes back.

        Raises:
            StoreError: If there is no such state, its file is damaged, or it is not as `like` is.
        """
        entry = self._known(self._manifest.states, name, "state")
        path = self.path / entry.file
        clause = fault(self.path, self._manifest, name, entry, hashes=True)
        if clause:
            raise StoreError(f"the file {path} {clause}: restore it, or begin in another folder.")
        arrays = parse(np.fromfile(path, np.uint8))
        keys = key_names(read_header(path).metadata)
        if like is None:
            return nested({leaf: decode(x, keys.get(leaf)) for leaf, x in arrays.items()})
        return restore(arrays, keys, like, f"the state {name!r} in {path}")

    def stream(
        self, name: str, like: Any = None, *, damaged: Damaged | None = None
    ) -> StoredStream:
        """The draws of a stream, read in part and only when asked for.

        Args:
            name: The stream.
            like: A tree in whose structure draws are returned; nested dictionaries without it.
            damaged: With "skip" every shard is read and compared with its hash, and bad ones are
                left out with a warning that names them. By default as the run was opened.

        Raises:
            StoreError: If there is no such stream.
        """
        stream = self._known(self._manifest.streams, name, "stream")
        bad: dict[str, str] = {}
        if opening.check_damaged(damaged or self._damaged) == "skip":
            bad = faults(self.path, self._manifest, only=name, hashes=True)
        good = [entry for entry in stream.shards if entry.file not in bad]
        if bad:
            kept, total = (sum(x.draws for x in part) for part in (good, stream.shards))
            warnings.warn(
                f"{sentence(self.path, bad)}: {total - kept:,} of {total:,} draws of {name!r} are "
                "left out.",
                DamageWarning,
                stacklevel=2,
            )
        keys = key_names(read_header(self.path / good[0].file).metadata) if good else {}
        files = [(entry.file, entry.draws) for entry in good]
        return StoredStream(self.path, name, files, stream.leaves, keys, like)

    def readable(self, name: str) -> StoredStream:
        """The part of a stream that is good, after reading all of it: `stream`, damaged skipped."""
        return self.stream(name, damaged="skip")

    def draws(self, name: str = "draws", like: Any = None) -> Draws:
        """A stream that has the parts of `Draws`: params, mode, log_density, statistics.

        Args:
            name: The stream.
            like: Parameters of one network, for their structure; nested dictionaries without it.

        Raises:
            StoreError: If there is no such stream, or it has no leaves under params.
        """
        stream = self.stream(name)
        leaves = {path: stream.leaf(path) for path in stream.paths}
        return draws_of(leaves, like, f"the stream {name!r} in {self.path}")

    def to_datatree(self, name: str = "draws") -> xarray.DataTree:
        """A stream of `Draws` as ArviZ reads it; see `to_datatree`.

        Args:
            name: The stream.
        """
        return to_datatree(self.draws(name))

    def check(self) -> None:
        """Reads every file and compares it with its hash.

        Raises:
            StoreError: If a file is missing, truncated, edited, swapped with another or not of this
                run; it names every such file and what is wrong with it.
        """
        manifest = Manifest.read(self.path)
        found = faults(self.path, manifest, hashes=True)
        if manifest.run != self.id:
            found = {NAME: f"is of run {manifest.run}, and the run that was opened is {self.id}"}
        if found:
            raise StoreError(
                sentence(self.path, found) + ": restore what is bad, or read what is left with "
                "run.stream(name, damaged='skip')."
            )

    def __repr__(self) -> str:
        counts = {
            name: sum(entry.draws for entry in stream.shards)
            for name, stream in self._manifest.streams.items()
        }
        parts = [*(f"{name}: {n:,} draws" for name, n in counts.items()), *self.states()]
        return f"Run({str(self.path)!r}, {', '.join(parts) or 'empty'})"

    def _commit(self, manifest: Manifest) -> None:
        try:
            manifest.write(self.path)
        except BaseException as error:
            # Which of the two manifests is on the disk is not known: only opening it again tells.
            self.close()
            if isinstance(error, OSError):
                raise StoreError(
                    f"the file {self.path / NAME} cannot be written ({error.strerror or error}); "
                    "what was kept before is whole: make room and continue the run."
                ) from error
            raise
        replaced = self._manifest.files.keys() - manifest.files.keys()
        self._manifest = manifest
        for file in replaced:
            (self.path / file).unlink(missing_ok=True)

    def _known(self, entries: Mapping[str, Any], name: str, kind: str) -> Any:
        if name not in entries:
            has = ", ".join(entries) or "none"
            raise StoreError(f"the run in {self.path} has no {kind} {name!r}; it has {has}.")
        return entries[name]
