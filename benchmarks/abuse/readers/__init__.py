"""Everything of onebasin that reads a file, and what it reads."""

from __future__ import annotations

from abuse.readers.reader import Reader as Reader


def all_readers() -> dict[str, Reader]:
    """Readers by name; those of PyTorch only where it is installed."""
    from abuse.readers import data, networks, results, runs, texts

    found = [*runs.READERS, *networks.readers(), *texts.READERS, *results.READERS, *data.READERS]
    return {reader.name: reader for reader in found}
