"""One piece of work in a process of its own: to its end, or until somebody kills it.

It prints `begun` when everything is imported, and `done DIGEST` at its end.
"""

from __future__ import annotations

import sys
from pathlib import Path

from abuse import outcomes, problems


def main(kind: str, folder: str) -> None:
    """Does the work, or what is left of it."""
    print("begun", flush=True)
    found = problems.KINDS[kind](Path(folder))
    print(f"done {outcomes.digest(found)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
