"""A run on disk: its config, its states and its draws, which survive the process."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onebasin.posterior import Draws
from onebasin.store import opening, recovery
from onebasin.store.committing import put_manifest, remove_replaced
from onebasin.store.damage import faults, sentence, way_back
from onebasin.store.datatree import to_datatree
from onebasin.store.errors import StoreError, checked_path
from onebasin.store.hashes import sha256_anew
from onebasin.store.leaves import decode, nested, restore
from onebasin.store.lock import Lock
from onebasin.store.manifest import plain
from onebasin.store.manifest_file import NAME, read_manifest
from onebasin.store.opening import Damaged
from onebasin.store.posteriors import MEMORY, check_size, draws_of
from onebasin.store.records import Manifest
from onebasin.store.recovery import Recovery
from onebasin.store.states import read_state
from onebasin.store.stream import StoredStream, open_stream
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
        folder = checked_path(path)
        manifest = Manifest.new(plain(config, "config"), plain(seeds, "seeds"))
        opening.check_free(folder)
        lock = opening.lock(folder)
        opening.check_free(folder)
        opening.remove_leftovers(folder, manifest)
        put_manifest(folder, manifest)
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
        folder = checked_path(path)
        return cls(folder, opening.for_reading(folder, damaged), None, damaged)

    @classmethod
    def continue_or_create(
        cls, path: str | os.PathLike[str], config: Any, seeds: Any = None
    ) -> Run:
        """Goes on with the run in a folder if it was asked to do the same, or begins one.

        Every file of the run is read once and compared with its hash. What an interrupted process
        left half done is removed.

        Args:
            path: The folder.
            config: What the run is asked to do.
            seeds: Its random seeds.

        Raises:
            StoreError: If the run there has another config or other seeds (it names the first
                difference), is damaged, or is being written by another process; or if there are
                files of a run whose manifest is lost.
        """
        folder = checked_path(path)
        if not opening.has_run(folder):
            return cls.create(path, config, seeds)
        asked = {"config": plain(config, "config"), "seeds": plain(seeds, "seeds")}
        opening.for_writing(folder, asked, whole=False)
        lock = opening.lock(folder)
        manifest = opening.for_writing(folder, asked, whole=True)
        opening.remove_leftovers(folder, manifest)
        return cls(folder, manifest, lock)

    @staticmethod
    def recovery(path: str | os.PathLike[str]) -> Recovery:
        """What going back to the transaction before would cost a damaged run; changes nothing.

        Args:
            path: The folder.

        Raises:
            StoreError: If there is no way back, as more is bad than the last transaction.
        """
        return recovery.plan(checked_path(path))[0]

    @staticmethod
    def recover(path: str | os.PathLike[str]) -> Recovery:
        """Takes a damaged run back to the transaction before its last, from where it goes on.

        A run that is whole stays as it is. The command is `onebasin recover RUN`.

        Args:
            path: The folder.

        Returns:
            What was bad, and what was given up.

        Raises:
            StoreError: If there is no way back, as more is bad than the last transaction; or if
                another process is writing.

        Example:
            >>> import os, tempfile
            >>> import numpy as np
            >>> from onebasin.store import Run
            >>> folder = os.path.join(tempfile.mkdtemp(), "run")
            >>> with Run.create(folder, {}) as run:
            ...     for step in range(2):
            ...         with run.transaction() as t:
            ...             t.append("draws", {"w": np.ones((3, 2))})
            >>> os.remove(os.path.join(folder, "streams", "draws-000001.safetensors"))
            >>> Run.recover(folder).lost
            {'draws': 3}
            >>> Run.open(folder).stream("draws")
            StoredStream('draws': 3 draws in 1 shard, leaves w)
        """
        return recovery.recover(checked_path(path))

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
        arrays, keys = read_state(self.path, self.id, name, entry)
        if like is None:
            return nested({leaf: decode(x, keys.get(leaf)) for leaf, x in arrays.items()})
        return restore(arrays, keys, like, f"the state {name!r} in {self.path / entry.file}")

    def stream(
        self,
        name: str,
        like: Any = None,
        *,
        damaged: Damaged | None = None,
        mapped: bool = False,
    ) -> StoredStream:
        """The draws of a stream, read in part and only when asked for.

        A shard is compared with its hash before the first of its draws is returned.

        Args:
            name: The stream.
            like: A tree in whose structure draws are returned; nested dictionaries without it.
            damaged: With "skip" every shard is read and compared with its hash, and bad ones are
                left out with a warning that names them. By default as the run was opened.
            mapped: Return draws from within one shard as a map of its file, which takes no memory.
                Whoever edits the file later changes them, and a file that is cut ends the process
                with a bus error: for files that nobody else writes to.

        Raises:
            StoreError: If there is no such stream.
        """
        self._known(self._manifest.streams, name, "stream")
        skip = opening.check_damaged(damaged or self._damaged) == "skip"
        return open_stream(self.path, self._manifest, name, like, skip=skip, mapped=mapped)

    def readable(self, name: str) -> StoredStream:
        """The part of a stream that is good, after reading all of it: `stream`, damaged skipped."""
        return self.stream(name, damaged="skip")

    def draws(
        self,
        name: str = "draws",
        like: Any = None,
        *,
        mapped: bool = False,
        memory: int = MEMORY,
    ) -> Draws:
        """A stream that has the parts of `Draws`: params, mode, log_density, statistics.

        Args:
            name: The stream.
            like: Parameters of one network, for their structure; nested dictionaries without it.
            mapped: As for `stream`.
            memory: Refuse to copy more bytes than this.

        Raises:
            StoreError: If there is no such stream, it has no leaves under params, is damaged, or
                takes more memory.
        """
        stream = self.stream(name, mapped=mapped)
        if not mapped:
            check_size(f"the stream {name!r} in {self.path}", stream.nbytes, memory)
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
        manifest = read_manifest(self.path)
        found = faults(self.path, manifest, hashed=sha256_anew)
        if manifest.run != self.id:
            found = {NAME: f"is of run {manifest.run}, and the run that was opened is {self.id}"}
        if found:
            raise StoreError(
                f"{sentence(self.path, found)}: {way_back(self.path)}, or read what is left with "
                "run.stream(name, damaged='skip')."
            )

    def __repr__(self) -> str:
        counts = self._manifest.num_draws()
        parts = [*(f"{name}: {n:,} draws" for name, n in counts.items()), *self.states()]
        return f"Run({str(self.path)!r}, {', '.join(parts) or 'empty'})"

    def _commit(self, manifest: Manifest) -> None:
        try:
            put_manifest(self.path, manifest, keep=True)
        except BaseException:
            # Which of the two manifests is on the disk is not known: only opening it again tells.
            self.close()
            raise
        before, self._manifest = self._manifest, manifest
        remove_replaced(self.path, before, manifest)

    def _known(self, entries: Mapping[str, Any], name: str, kind: str) -> Any:
        if name not in entries:
            has = ", ".join(entries) or "none"
            raise StoreError(f"the run in {self.path} has no {kind} {name!r}; it has {has}.")
        return entries[name]
