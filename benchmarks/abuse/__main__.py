"""The command line: which abuse, how much of it, from which seed."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path


def main() -> int:
    """Does one kind of abuse; 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="abuse")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text)
        made.add_argument("--seed", type=int, default=0)
        made.add_argument("--out", type=Path, help="write the numbers as JSON to this file")
        return made

    kills = command("kills", "kill processes, and cut their power, and go on")
    kills.add_argument("--count", type=int, default=100, help="kills, over all kinds of work")
    kills.add_argument("--power-cuts", type=int, default=20)
    kills.add_argument("--kinds", nargs="*", help="hmc sghmc ensemble mean_field study")
    mutations = command("mutations", "read damaged files")
    mutations.add_argument("--count", type=int, default=10_000, help="files, over all readers")
    mutations.add_argument("--readers", nargs="*", help="names, or parts of them")
    mutations.add_argument("--case", type=int, help="only this case, with its traceback")
    mutations.add_argument("--one-process", action="store_true", help="quicker for few cases")
    hostile = command("hostile", "work in folders that a stranger made")
    hostile.add_argument("--only", nargs="*", help="names, or parts of them")
    full = command("full-disk", "let the disk be full at each write of a run")
    full.add_argument("--kinds", nargs="*", help="hmc sghmc ensemble mean_field")
    full.add_argument("--every", type=int, default=1, help="try every so manieth write")
    given = parser.parse_args()

    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # Programs are many and small: optimising them would cost more than they take.
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    print(f"abuse {given.command}, seed {given.seed}", flush=True)
    if given.command == "kills":
        from abuse.kills import run
    elif given.command == "mutations":
        from abuse.mutations import run
    elif given.command == "hostile":
        from abuse.hostile import run
    else:
        from abuse.full_disk import run
    return run(given)


if __name__ == "__main__":
    sys.exit(main())
