"""What is known of a run: the files that belong to it, and what it held one transaction ago."""

from __future__ import annotations

import dataclasses
import secrets
from typing import Any

from onebasin.store.manifest import now, versions


@dataclasses.dataclass(frozen=True)
class Entry:
    """One file of a run.

    Args:
        file: Its path in the folder of the run.
        bytes: Its size.
        sha256: Its hash; empty where the manifest was lost and the file speaks for itself.
        index: Which shard of its stream it is; of a state, the number of the transaction.
        draws: How many draws it holds; 0 for a state.
    """

    file: str
    bytes: int
    sha256: str
    index: int
    draws: int = 0


@dataclasses.dataclass(frozen=True)
class Stream:
    """The shards of one stream, and type and shape of a draw of every leaf."""

    leaves: dict[str, tuple[str, tuple[int, ...]]]
    shards: tuple[Entry, ...] = ()


@dataclasses.dataclass(frozen=True)
class Before:
    """What a run held before its last transaction: what it needs to go on from there.

    Args:
        transactions: How many there were.
        updated: When the last of them ended.
        notes: The notes.
        states: The states.
        shards: How many shards each stream had.
    """

    transactions: int
    updated: str
    notes: dict[str, Any]
    states: dict[str, Entry]
    shards: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Manifest:
    """All that is known of a run. It is never changed: a transaction makes the next one."""

    run: str
    config: Any
    seeds: Any
    versions: tuple[dict[str, str], ...]
    created: str
    updated: str
    transactions: int = 0
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)
    states: dict[str, Entry] = dataclasses.field(default_factory=dict)
    streams: dict[str, Stream] = dataclasses.field(default_factory=dict)
    before: Before | None = None

    @classmethod
    def new(cls, config: Any, seeds: Any) -> Manifest:
        """The manifest of a run that has not begun."""
        time = now()
        return cls(secrets.token_hex(8), config, seeds, (versions(),), time, time)

    @property
    def files(self) -> dict[str, Entry]:
        """Every file of the run by its path."""
        shards = [shard for stream in self.streams.values() for shard in stream.shards]
        return {entry.file: entry for entry in [*self.states.values(), *shards]}

    @property
    def kept(self) -> set[str]:
        """The paths of these files, and of those with which the run can go back."""
        earlier = self.before.states.values() if self.before else ()
        return {*self.files, *(entry.file for entry in earlier)}

    def followed(self, **changes: Any) -> Manifest:
        """The manifest after one more transaction."""
        before = Before(
            self.transactions,
            self.updated,
            self.notes,
            self.states,
            {name: len(stream.shards) for name, stream in self.streams.items()},
        )
        return dataclasses.replace(
            self, updated=now(), transactions=self.transactions + 1, before=before, **changes
        )

    def without_last(self) -> Manifest | None:
        """The manifest before the last transaction, if it is known."""
        if self.before is None:
            return None
        streams = {
            name: Stream(self.streams[name].leaves, self.streams[name].shards[:count])
            for name, count in self.before.shards.items()
        }
        return dataclasses.replace(
            self,
            updated=self.before.updated,
            transactions=self.before.transactions,
            notes=self.before.notes,
            states=self.before.states,
            streams=streams,
            before=None,
        )

    def num_draws(self) -> dict[str, int]:
        """How many draws each stream has."""
        return {name: sum(x.draws for x in s.shards) for name, s in self.streams.items()}
